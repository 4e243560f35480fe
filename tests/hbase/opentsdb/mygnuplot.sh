#!/bin/sh
# How OpenTSDB starts gnuplot: mygnuplot.sh STDOUT STDERR SCRIPT. It finds this file by the class path.
exec nice gnuplot "$3" >"$1" 2>"$2"
