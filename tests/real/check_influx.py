"""Writes points with InfluxDB's clients, versions 1 and 2, and finds them again.

    check_influx.py SERVER
"""

import json
import sys
import urllib.parse
import urllib.request

import influxdb
import influxdb_client
from influxdb_client.client.write_api import SYNCHRONOUS

START = 1_700_000_000
POINTS = 2_000

server = sys.argv[1]
address = urllib.parse.urlparse(server)


def stored(metric):
    """The points of a metric, by host."""
    query = urllib.parse.urlencode({"start": 1, "ms": "true", "m": f"none:{metric}{{}}"})
    with urllib.request.urlopen(f"{server}/api/query?{query}") as response:
        return {series["tags"]["host"]: series["dps"] for series in json.load(response)}


def expected(number_of_hosts):
    points = {}
    for number in range(POINTS):
        host = points.setdefault(f"web {number % number_of_hosts}".replace(" ", "_"), {})
        host[str((START + number) * 1000)] = number / 4
    return points


first = influxdb.InfluxDBClient(address.hostname, address.port, database="telegraf", gzip=True)
first.create_database("telegraf")
assert first.ping() == "1.8.10", first.ping()
points = [
    {
        "measurement": "cpu load",
        "tags": {"host": f"web {number % 3}"},
        "time": START + number,
        "fields": {"user": number / 4, "note": "a text, \"quoted\"", "up": True},
    }
    for number in range(POINTS)
]
assert first.write_points(points, time_precision="s", batch_size=500)
assert stored("cpu_load.user") == expected(3), stored("cpu_load.user")
assert all(value == 1 for series in stored("cpu_load.up").values() for value in series.values())

with influxdb_client.InfluxDBClient(url=server, token="any", org="any", enable_gzip=True) as second:
    write = second.write_api(write_options=SYNCHRONOUS)
    write.write(
        "bucket",
        record=[
            influxdb_client.Point("disk")
            .tag("host", f"web {number % 3}")
            .field("used", number / 4)
            .time((START + number) * 1_000_000_000)
            for number in range(POINTS)
        ],
    )
    assert stored("disk.used") == expected(3)
    try:
        write.write("bucket", record="disk,host=a used=1 1700000000000000000\nno point")
        raise AssertionError("a line that is no point was accepted")
    except influxdb_client.rest.ApiException as error:
        assert error.status == 400 and "dropped=1: 2: " in error.message, error
assert stored("disk.used")["a"] == {"1700000000000": 1.0}
print(f"InfluxDB's clients: {2 * POINTS} points of two versions are stored")
