"""Compares what Telegraf sent through each of its outputs with the results of /api/query.

    check_telegraf.py known >FILE      prints the points that Telegraf reads from a file
    check_telegraf.py SERVER RECORD    checks; RECORD is what outputs.file wrote: a line of JSON for each metric
"""

import json
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from pathlib import Path

START = 1_700_000_000
KNOWN = 500
# Lines over telnet may be in flight when Telegraf has exited.
PATIENCE_SECONDS = 20


def known():
    """The points of the file: tags, fields, and nanoseconds."""
    for number in range(KNOWN):
        tags = {"room": f"a {number % 3}", "place": "x=1,y", "host": "telegraf.test"}
        fields = {
            "temperature": number / 7,
            "steps": number - 9_007_199_254_740_993,
            "open": number % 2 == 0,
            "note": 'a text, "quoted"',
        }
        # OpenTSDB's outputs send whole seconds: each point has one of its own.
        yield tags, fields, (START + number) * 1_000_000_000 + number * 1_001_001


def line(tags, fields, nanoseconds):
    """A point in line protocol."""
    def escaped(value):
        return re.sub("([ ,=])", r"\\\1", value)

    def written(value):
        if isinstance(value, str):
            return '"' + value.replace('"', '\\"') + '"'
        return f"{value}i" if type(value) is int else str(value).lower()

    tags = ",".join(f"{key}={escaped(value)}" for key, value in tags.items())
    fields = ",".join(f"{key}={written(value)}" for key, value in fields.items())
    return f"sensor,{tags} {fields} {nanoseconds}"


def replaced(name):
    """A name as the server stores it."""
    return re.sub(r"[^A-Za-z0-9\-_./]", "_", name)


def sanitized(name):
    """A name as Telegraf sends it to OpenTSDB. Source: Telegraf 1.37, plugins/outputs/opentsdb/opentsdb.go, sanitize."""
    return replaced(re.sub("[@*%#$]", "-", name))


def milliseconds(nanoseconds):
    return nanoseconds // 1_000_000


def seconds(nanoseconds):
    return nanoseconds // 1_000_000_000 * 1000


def number_or_truth(value):
    return None if isinstance(value, str) else value + 0


def number(value):
    return None if isinstance(value, (str, bool)) else value


def six_digits(value):
    return float(f"{value:.6f}") if isinstance(value, float) else number(value)


# By output: the metric of a measurement and a field, the name of a tag, the instant, and the value; none for those that are not sent.
OUTPUTS = {
    "influxdb": ("v1_{}.{}", replaced, milliseconds, number_or_truth),
    "influxdb_v2": ("v2_{}_{}", replaced, milliseconds, number_or_truth),
    "opentsdb over HTTP": ("http.{}_{}", sanitized, seconds, number),
    "opentsdb over telnet": ("telnet.{}_{}", sanitized, seconds, six_digits),
    "opentelemetry": ("otlp_{}_{}", replaced, milliseconds, number),
}


def expected(record, output):
    """By metric and tags, the values by millisecond."""
    metric, name, instant, value_of = output
    series = defaultdict(lambda: defaultdict(dict))
    for sent in record:
        tags = tuple(sorted((name(key), name(value)) for key, value in sent["tags"].items()))
        for field, value in sent["fields"].items():
            value = value_of(value)
            if value is not None:
                series[metric.format(sent["name"], field)][tags][str(instant(sent["timestamp"]))] = value
    return series


def stored(server, metric):
    query = urllib.parse.urlencode({"start": 1, "ms": "true", "m": f"none:{metric}{{}}"})
    try:
        with urllib.request.urlopen(f"{server}/api/query?{query}") as response:
            return {tuple(sorted(series["tags"].items())): series["dps"] for series in json.load(response)}
    except urllib.error.HTTPError as error:
        return {"error": f"{error.code} {error.read().decode()}"}


def compare(server, series):
    """What is wrong with the stored series of an output."""
    for metric, by_tags in series.items():
        found = stored(server, metric)
        for tags in found.keys() | by_tags.keys():
            if found.get(tags) != by_tags.get(tags):
                yield f"{metric} {tags}: {found.get(tags)} in place of {by_tags.get(tags)}"


def check_known(record):
    """The record has the points of the file, each once."""
    sent = [(one["tags"], one["fields"], one["timestamp"]) for one in record if one["name"] == "sensor"]
    assert sent == list(known()), "the record has other points than the file"


def main(server, path):
    record = [json.loads(text) for text in Path(path).read_text().splitlines()]
    check_known(record)
    measurements = {one["name"] for one in record}
    assert measurements == {"cpu", "mem", "sensor"}, measurements
    end = time.monotonic() + PATIENCE_SECONDS
    for name, output in OUTPUTS.items():
        series = expected(record, output)
        while (wrong := list(compare(server, series))) and time.monotonic() < end:
            time.sleep(0.5)
        if wrong:
            sys.exit("\n".join([f"Telegraf, {name}: {len(wrong)} series are wrong", *wrong[:5]]))
        count = sum(len(values) for by_tags in series.values() for values in by_tags.values())
        print(f"Telegraf, {name}: {count} points of {len(series)} metrics are stored")


if sys.argv[1:] == ["known"]:
    for point in known():
        print(line(*point))
else:
    main(*sys.argv[1:])
