"""Points and queries of compaction.sh."""

import hashlib
import json
import os
import statistics
import sys
import time
import urllib.request

START = 1_500_000_000 // 86_400 * 86_400
RUNS = 7
METRIC = "bench.compaction"


def points(series=300, hours=24, step=60):
    series, hours, step = int(series), int(hours), int(step)
    lines = []
    # Series by series, so that the import sends many points of a row together.
    for host in range(series):
        for second in range(0, hours * 3600, step):
            value = (host * 7 + second // step * 13) % 1000
            lines.append(f"{METRIC} {START + second} {value} host=h{host:04} dc=d{host % 10}\n")
        sys.stdout.writelines(lines)
        lines.clear()


def sub_query(aggregator, tags, downsample=None):
    query = {"aggregator": aggregator, "metric": METRIC, "tags": tags}
    if downsample:
        query["downsample"] = downsample
    return query


QUERIES = [
    ("one host, a day, raw", 0, 86_400, sub_query("none", {"host": "h0007", "dc": "d7"})),
    ("all hosts, an hour, sum of 1m-avg", 36_000, 39_600, sub_query("sum", {}, "1m-avg")),
    ("all hosts, a day, sum of 1h-avg", 0, 86_400, sub_query("sum", {}, "1h-avg")),
    ("all hosts, a day, max of 5m-max by dc", 0, 86_400, sub_query("max", {"dc": "*"}, "5m-max")),
]


def ask(server, body):
    request = urllib.request.Request(f"http://{server}/api/query", body, {"Content-Type": "application/json"})
    begun = time.perf_counter()
    with urllib.request.urlopen(request, timeout=300) as response:
        text = response.read()
    return time.perf_counter() - begun, text


def values(text):
    """What has to agree: the points of all groups."""
    groups = [(sorted(group["tags"].items()), group["dps"]) for group in json.loads(text)]
    return hashlib.sha256(json.dumps(sorted(groups, key=str)).encode()).hexdigest()


def queries(title, results, opentsdb, oxtsdb):
    print(f"{title}: medians of {RUNS} runs in ms")
    seen = json.load(open(results)) if os.path.exists(results) else {}
    for name, start, end, query in QUERIES:
        body = json.dumps({"start": START + start, "end": START + end - 1, "queries": [query]}).encode()
        medians = []
        for who, server in (("OpenTSDB", opentsdb), ("OxTSDB", oxtsdb)):
            for _ in range(1):
                ask(server, body)
            times = []
            for _ in range(RUNS):
                taken, text = ask(server, body)
                times.append(taken * 1000)
            medians.append(statistics.median(times))
            digest = values(text)
            if seen.setdefault(f"{who}: {name}", digest) != digest:
                sys.exit(f"{who}: {name}: the result differs from that of the single cells")
        print(f"  {name:40} OpenTSDB {medians[0]:8.1f}   OxTSDB {medians[1]:8.1f}")
    json.dump(seen, open(results, "w"))


{"points": points, "queries": queries}[sys.argv[1]](*sys.argv[2:])
