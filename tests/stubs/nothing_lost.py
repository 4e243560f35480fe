"""Compares the points of the drain on both servers with what was written: 0 to 1999, one each second.

    nothing_lost.py METRIC FIRST_HTTP_PORT SECOND_HTTP_PORT
"""

import json
import sys
import urllib.request

metric, *ports = sys.argv[1:]
stored = set()
for port in ports:
    # A server that has acknowledged nothing does not know the metric.
    url = f"http://127.0.0.1:{port}/api/query?start=6h-ago&m=sum:{metric}"
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            for series in json.load(response):
                stored |= {(int(second), value) for second, value in series["dps"].items()}
    except urllib.error.HTTPError as error:
        if b"No such name" not in error.read():
            raise
start = min(second for second, _ in stored)
written = {(start + number, number) for number in range(2000)}
if stored != written:
    sys.exit(f"{metric}: {len(written - stored)} points lost, {len(stored - written)} not as written")
print(f"{metric}: all {len(written)} points are stored")
