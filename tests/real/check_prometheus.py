"""Waits until Prometheus has samples of some seconds, and compares all of them with what it wrote to the server, with what
another Prometheus reads there, and with what the program REMOTE_READ (remote_read/main.go) reads in streamed chunks.

    check_prometheus.py PROMETHEUS SERVER READER REMOTE_READ SECONDS
"""

import json
import math
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

prometheus, server, reader, remote_read = sys.argv[1:5]
seconds = int(sys.argv[5])
PATIENCE = 60


def get(url, **parameters):
    with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(parameters)}") as response:
        return json.load(response)


def promql(source, query, until):
    """The result of a query, without warnings: those of remote read among them."""
    response = get(f"{source}/api/v1/query", query=query, time=until)
    assert not response.get("warnings"), response["warnings"]
    return response["data"]["result"]


def samples(source, metric, until):
    """Raw samples of a Prometheus, by the tags that the server has for their series."""
    result = promql(source, f"{metric}[{seconds + PATIENCE}s]", until)
    return by_tags(
        (one["metric"], {str(round(instant * 1000)): value for instant, value in one["values"]}) for one in result
    )


def by_tags(all_series):
    """Series of labels and values, by the tags that the server has for them."""
    series = {}
    for labels, values in all_series:
        labels = {key: value for key, value in labels.items() if key != "__name__" and value}
        tags = {key: re.sub(r"[^A-Za-z0-9\-_./]", "_", value) for key, value in labels.items()}
        numbers = {instant: float(value) for instant, value in values.items()}
        series[tuple(sorted(tags.items()))] = {
            instant: value for instant, value in numbers.items() if math.isfinite(value)
        }
    return {tags: values for tags, values in series.items() if values}


def streamed(metrics, until):
    """The samples of metrics, read in streamed chunks."""
    end = round(until * 1000)
    start = end - (seconds + PATIENCE) * 1000
    command = [remote_read, f"{server}/api/v1/read", str(start), str(end)]
    lines = subprocess.run(command, input="\n".join(metrics), stdout=subprocess.PIPE, text=True, check=True).stdout
    series = {}
    for line in lines.splitlines():
        series.update(json.loads(line))
    return {metric: by_tags(of_metric) for metric, of_metric in series.items()}


def stored(metric, until):
    try:
        result = get(f"{server}/api/query", start=1, end=round(until * 1000), ms="true", m=f"none:{metric}{{}}")
    except urllib.error.HTTPError as error:
        # A metric of which no sample has arrived.
        if error.code != 400:
            raise
        return {}
    # The requests of this check begin series, which have no sample until then.
    return {tuple(sorted(series["tags"].items())): series["dps"] for series in result if series["dps"]}


def patiently(check):
    """Calls `check` until it does not raise."""
    end = time.monotonic() + PATIENCE + seconds
    while True:
        try:
            return check()
        except (OSError, KeyError, IndexError, AssertionError) as error:
            if time.monotonic() > end:
                sys.exit(f"not in time: {error!r}")
        time.sleep(0.2)


def scraped():
    """The instant of a scrape, when there are enough."""
    values = get(f"{prometheus}/api/v1/query", query=f"up[{PATIENCE + seconds}s]")["data"]["result"][0]["values"]
    assert len(values) >= seconds, f"{len(values)} scrapes"
    return values[-1][0]


def equal(metric, expected, until):
    written = stored(metric, until)
    for tags in expected.keys() | written.keys():
        assert written.get(tags) == expected.get(tags), (
            f"{metric} {tags}: {written.get(tags)} in place of {expected.get(tags)}"
        )


until = patiently(scraped)
metrics = get(f"{prometheus}/api/v1/label/__name__/values")["data"]
assert len(metrics) > 100, metrics
counted, all_expected = 0, {}
for metric in metrics:
    expected = samples(prometheus, metric, until)
    if not expected:
        continue
    # Remote write follows the scrapes.
    patiently(lambda: equal(metric, expected, until))
    assert samples(reader, metric, until) == expected, f"{metric} by remote read"
    counted += sum(len(values) for values in expected.values())
    all_expected[metric] = expected
read = streamed(all_expected, until)
for metric, expected in all_expected.items():
    assert read[metric] == expected, f"{metric} by streamed chunks: {read[metric]} in place of {expected}"


def by_handler(source):
    """A sum of rates over the series that matchers of all kinds select, by a label."""
    matchers = 'job="itself",handler=~"/api/v1/query|/metrics|/none",handler!="/",nothing="",quantile!~"0.+"'
    result = promql(source, f"sum by (handler) (increase(prometheus_http_requests_total{{{matchers}}}[{seconds}s]))", until)
    return {one["metric"]["handler"]: float(one["value"][1]) for one in result}


# A query without a metric is refused, which Prometheus reports beside its own points.
refused = get(f"{reader}/api/v1/query", query='{job="itself"}', time=until)
assert refused["status"] == "success" and "name no metric" in str(refused["warnings"]), refused
expected, read = by_handler(prometheus), by_handler(reader)
assert expected and read == expected, f"{read} in place of {expected}"
print(f"Prometheus: {counted} samples of {len(metrics)} metrics are stored, and read by PromQL and in streamed chunks")
