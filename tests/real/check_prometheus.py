"""Waits until Prometheus has samples of some seconds, and compares all of them with what it wrote to the server, and with what
another Prometheus reads there.

    check_prometheus.py PROMETHEUS SERVER READER SECONDS
"""

import json
import math
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

prometheus, server, reader, seconds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
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
    series = {}
    for one in result:
        labels = {key: value for key, value in one["metric"].items() if key != "__name__" and value}
        tags = {key: re.sub(r"[^A-Za-z0-9\-_./]", "_", value) for key, value in labels.items()}
        values = {str(round(instant * 1000)): float(value) for instant, value in one["values"]}
        series[tuple(sorted(tags.items()))] = {
            instant: value for instant, value in values.items() if math.isfinite(value)
        }
    return {tags: values for tags, values in series.items() if values}


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
counted = 0
for metric in metrics:
    expected = samples(prometheus, metric, until)
    if not expected:
        continue
    # Remote write follows the scrapes.
    patiently(lambda: equal(metric, expected, until))
    assert samples(reader, metric, until) == expected, f"{metric} by remote read"
    counted += sum(len(values) for values in expected.values())


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
print(f"Prometheus: {counted} samples of {len(metrics)} metrics are stored, and read by PromQL")
