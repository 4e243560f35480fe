"""Waits until Prometheus has samples of some seconds, and compares all of them with what it wrote to the server, with what
another Prometheus reads there, and with what the program REMOTE_READ (prometheus/remote_read) reads in streamed chunks.

    check_prometheus.py VERSION SERVER PORT REMOTE_READ SECONDS

VERSION is that of remote write. Prometheus listens on PORT, the reader on the next one; it scrapes itself and, on the port after that,
a target that this check serves, with a series that ends.
"""

import http.server
import json
import math
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

version, server, port, remote_read, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
prometheus, reader = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"
PATIENCE = 60


class Target(http.server.BaseHTTPRequestHandler):
    """A target of scrapes. The third one is the last that has the series `vanishing`: a marker follows, which is no point."""

    scrapes = 0

    def do_GET(self):
        Target.scrapes += 1
        body = f"lasting {Target.scrapes}\n" + (f"vanishing {Target.scrapes}\n" if Target.scrapes <= 3 else "")
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


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
    # A native histogram has no values.
    return by_tags(
        (one["metric"], {str(round(instant * 1000)): value for instant, value in one.get("values", [])}) for one in result
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
    query = f'up{{job="itself"}}[{PATIENCE + seconds}s]'
    values = get(f"{prometheus}/api/v1/query", query=query)["data"]["result"][0]["values"]
    assert len(values) >= seconds, f"{len(values)} scrapes"
    return values[-1][0]


def equal(metric, expected, found):
    # The native histogram of the same name has buckets of its own beside the classic ones.
    others = () if metric.removesuffix("_bucket") in native_histograms else found.keys()
    for tags in expected.keys() | others:
        assert found.get(tags) == expected.get(tags), (
            f"{metric} {tags}: {found.get(tags)} in place of {expected.get(tags)}"
        )


def native_equal(metric, until):
    """Finds the native histograms of a metric as classic ones. Returns their number."""
    counts, sums, buckets = (stored(f"{metric}_{suffix}", until) for suffix in ("count", "sum", "bucket"))
    number = 0
    for one in promql(prometheus, f"{metric}[{seconds + PATIENCE}s]", until):
        ((tags, _),) = by_tags([(one["metric"], {"any": 0})]).items()
        own = {dict(key)["le"].replace("_", "+"): values for key, values in buckets.items() if others(key) == tags}
        for at, histogram in one["histograms"]:
            instant = str(round(at * 1000))
            assert counts[tags][instant] == float(histogram["count"]), f"{metric}_count {tags} at {instant}"
            assert sums[tags][instant] == float(histogram["sum"]), f"{metric}_sum {tags} at {instant}"
            total = 0
            # Ascending, without empty ones.
            for _, _, upper, count in [*histogram.get("buckets", []), (None, None, "+Inf", 0)]:
                total += float(count)
                same = [values for bound, values in own.items() if math.isclose(float(bound), float(upper), rel_tol=1e-12)]
                assert any(values.get(instant) == total for values in same), (
                    f"{metric}_bucket {tags} le={upper} at {instant}: {total} is missing"
                )
            number += 1
    return number


def others(tags):
    """The tags of a bucket without its bound."""
    return tuple(tag for tag in tags if tag[0] != "le")


def writes(counter):
    """A counter of remote write."""
    (result,) = promql(prometheus, f"sum(prometheus_remote_storage_{counter}) or vector(0)", time.time())
    return float(result["value"][1])


def all_written(count):
    """Version 2.0 compares what it sent with the numbers in the headers of the responses."""
    assert writes("samples_total") >= count, writes("samples_total")
    for kind in ("samples", "histograms", "metadata"):
        for counter in (f"{kind}_failed_total", f"{kind}_dropped_total", f"{kind}_retried_total"):
            assert writes(counter) == 0, f"{counter} is {writes(counter)}"


target = http.server.ThreadingHTTPServer(("127.0.0.1", port + 2), Target)
threading.Thread(target=target.serve_forever, daemon=True).start()
until = patiently(scraped)
metrics = get(f"{prometheus}/api/v1/label/__name__/values")["data"]
assert len(metrics) > 100, metrics
assert not promql(prometheus, "vanishing", until) and samples(prometheus, "vanishing", until), "no series has ended"
native_histograms = {
    one["metric"]["__name__"] for one in promql(prometheus, '{__name__!=""}', until) if "histogram" in one
}
assert bool(native_histograms) == (version == "2.0"), native_histograms
counted, all_expected = 0, {}
for metric in metrics:
    expected = samples(prometheus, metric, until)
    if not expected:
        continue
    # Remote write follows the scrapes.
    patiently(lambda: equal(metric, expected, stored(metric, until)))
    equal(metric, expected, samples(reader, metric, until))
    counted += sum(len(values) for values in expected.values())
    all_expected[metric] = expected
histograms = sum(patiently(lambda: native_equal(metric, until)) for metric in native_histograms)
read = streamed(all_expected, until)
for metric, expected in all_expected.items():
    equal(metric, expected, read[metric])


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
# Prometheus has its own counters from its next scrape on.
patiently(lambda: all_written(counted))
print(
    f"Prometheus, remote write {version}: {counted} samples of {len(metrics)} metrics are stored, and read by PromQL and in streamed"
    f" chunks; {histograms} native histograms of {len(native_histograms)} metrics are stored"
)
