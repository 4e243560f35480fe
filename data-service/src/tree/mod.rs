//! Trees.
#![allow(dead_code)]
mod evaluate;
mod rule;
