"""Finds the data points that a sender exported by /api/query: each with its exact value, and no others.

    check.py SERVER NAME TEMPORALITY RESOURCE <POINTS

RESOURCE has the keys of the resource's attributes that are tags, with commas between. POINTS are those that the exporter sent, a
line each:

    {"metric": …, "time": nanoseconds, "kind": …, "temporality": …, "attributes": {…}, "resource": {…}, "value": …}

Histograms have `count`, `sum`, `min` and `max` in place of `value`, with `bounds` and `counts`, or with `scale`, `zero_count`, `positive` and
`negative`, each with `offset` and `counts`.

Every sender records in two rounds, exports after each, and again when it shuts down:

    NAME.requests     counter                 3                      {route: /a, ok: true, status: 200, share: 0.5, list: [a, b]}
    NAME.queue        up-down counter         1.5, -0.25
    NAME.temperature  gauge                   -9007199254740991
    NAME.load         observable gauge        host / 4               {host: "web 0"} to {host: "web 199"}
    NAME.duration     histogram [0.1, 1]      0.05, 0.5, 0.5, 5      {route: /a}
    NAME.size         exponential histogram   0, 0.001, 1, 4096
"""

import json
import math
import re
import sys
import urllib.parse
import urllib.request
from collections import defaultdict
from decimal import Decimal

server, name, temporality, resource_keys = sys.argv[1:]


def text(value):
    """A number or a truth as the text of a tag."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{Decimal(repr(value)):f}".removesuffix(".0")
    return str(value)


def tags(point, **more):
    resource = {key: point["resource"][key] for key in resource_keys.split(",") if key in point["resource"]}
    attributes = {key: value for key, value in {**resource, **point["attributes"]}.items() if not isinstance(value, list)}
    written = {key: re.sub(r"[^A-Za-z0-9\-_./]", "_", text(value)) for key, value in {**attributes, **more}.items()}
    return tuple(sorted((written or {"source": "otlp"}).items()))


def points(sent):
    """The points of a data point, without the buckets of an exponential histogram: metric, tags, value."""
    metric = sent["metric"]
    if "value" in sent:
        yield metric, tags(sent), sent["value"]
        return
    total = 0
    for bound, count in zip([*sent["bounds"], "+Inf"], sent["counts"], strict=True) if "bounds" in sent else ():
        total += count
        yield f"{metric}_bucket", tags(sent, le=bound), total
    for suffix in ("count", "sum", "min", "max"):
        if sent.get(suffix) is not None:
            yield f"{metric}_{suffix}", tags(sent), sent[suffix]


def instant(sent):
    """The millisecond of a data point, as `dps` has it."""
    return str(int(sent["time"]) // 1_000_000)


def expected(all_sent):
    """By metric and tags, the values by instant."""
    series = defaultdict(lambda: defaultdict(dict))
    for sent in all_sent:
        for metric, of_series, value in points(sent):
            series[metric][of_series][instant(sent)] = value
    return series


def exponential_buckets(sent):
    """The upper bounds of the buckets, and their counts."""
    base = 2 ** 2 ** -sent["scale"]
    # An index has the values above this power of the base and up to the next one; below zero from the next one on.
    for index, count in enumerate(sent["negative"]["counts"], sent["negative"]["offset"]):
        yield -(base**index), count
    yield 0, sent["zero_count"]
    for index, count in enumerate(sent["positive"]["counts"], sent["positive"]["offset"]):
        yield base ** (index + 1), count


def is_same(bound, other):
    """Powers of the base end differently in each mathematical library."""
    return math.isclose(bound, other, rel_tol=1e-12)


def check_exponential(all_sent):
    """Each stored bucket has the count of all values up to its bound, and each bucket that has values is stored. Returns their number."""
    last = {(sent["metric"], tags(sent), instant(sent)): sent for sent in all_sent if "scale" in sent}
    by_histogram = defaultdict(dict)
    for metric in {metric for metric, _, _ in last}:
        for of_series, values in stored(f"{metric}_bucket").items():
            bound = dict(of_series)["le"]
            others = tuple(tag for tag in of_series if tag[0] != "le")
            for at, count in values.items():
                by_histogram[metric, others, at][math.inf if bound == "_Inf" else float(bound)] = count
    assert by_histogram.keys() == last.keys(), f"{by_histogram.keys()} in place of {last.keys()}"
    for key, found in by_histogram.items():
        sent = list(exponential_buckets(last[key]))
        for bound, count in found.items():
            up_to = sum(count for upper, count in sent if upper <= bound or is_same(upper, bound))
            assert count == up_to, f"{key}, le={bound}: {count} in place of {up_to}"
        for bound in [math.inf, *(upper for upper, count in sent if count)]:
            assert any(is_same(bound, other) for other in found), f"{key}, le={bound} is missing"
    return sum(len(found) for found in by_histogram.values())


def stored(metric):
    query = urllib.parse.urlencode({"start": "1h-ago", "ms": "true", "m": f"none:{metric}{{}}"})
    with urllib.request.urlopen(f"{server}/api/query?{query}") as response:
        return {tuple(sorted(series["tags"].items())): series["dps"] for series in json.load(response)}


def check_recorded(all_sent):
    """The exports have what the sender recorded."""
    by_metric = defaultdict(list)
    for sent in all_sent:
        by_metric[sent["metric"].removeprefix(f"{name}.")].append(sent)

    def first_two(metric, kind, of_temporality, field="value"):
        sent = by_metric[metric][:2]
        assert all((one["kind"], one.get("temporality") or None) == (kind, of_temporality) for one in sent), sent
        return [one[field] for one in sent]

    is_delta = temporality == "delta"
    assert first_two("requests", "sum", temporality) == ([3, 3] if is_delta else [3, 6])
    # What goes down has no delta by this preference.
    assert first_two("queue", "sum", "cumulative") == [1.25, 2.5]
    assert first_two("temperature", "gauge", None) == [-9007199254740991] * 2
    counts = [[1, 2, 1]] * 2 if is_delta else [[1, 2, 1], [2, 4, 2]]
    assert first_two("duration", "histogram", temporality, "counts") == counts
    assert first_two("size", "exponential histogram", temporality, "count") == ([4, 4] if is_delta else [4, 8])
    assert first_two("size", "exponential histogram", temporality, "zero_count") == ([1, 1] if is_delta else [1, 2])
    loads = {one["attributes"]["host"]: one["value"] for one in by_metric["load"]}
    assert loads == {f"web {host}": host / 4 for host in range(200)}, loads


# The SDK for Java also exports metrics of its own, under the same names each time.
all_sent = [sent for sent in map(json.loads, sys.stdin) if sent["metric"].startswith(f"{name}.")]
check_recorded(all_sent)
count = check_exponential(all_sent)
for metric, series in expected(all_sent).items():
    found = stored(metric)
    for of_series in series.keys() | found.keys():
        assert found.get(of_series) == series.get(of_series), (
            f"{metric} {of_series}: {found.get(of_series)} in place of {series.get(of_series)}"
        )
    count += sum(len(values) for values in series.values())
print(f"OpenTelemetry, {name}, {temporality}: {count} points of {len(all_sent)} exported ones are stored")
