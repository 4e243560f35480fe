"""Writes points, and compares results in Arrow's format, as other programs read them, with those in JSON.

    check_arrow.py SERVER TSDB DATA_SERVICE
"""

import http.client
import io
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import duckdb
import nanoarrow
import pandas
import polars
import pyarrow
import pyarrow.compute as pc

server, tsdb, data_service = sys.argv[1:]
ROOT = Path(__file__).parents[2]
START = 1_700_000_000
SECONDS = 5000
HOSTS = 20
LARGE = 2**53 + 1


def put(points):
    body = json.dumps(points).encode()
    urllib.request.urlopen(urllib.request.Request(f"{server}/api/put", body)).close()


def point(metric, second, value, **tags):
    return {"metric": metric, "timestamp": START + second, "value": value, "tags": tags}


def get(query, accept="application/vnd.apache.arrow.stream"):
    url = f"{server}/api/query?start={START}&end={START + SECONDS}&{query}"
    return urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}))


def table_of(query):
    with get(query) as response, pyarrow.ipc.open_stream(response) as stream:
        table = stream.read_all()
    table.validate(full=True)
    return table


def check_golden():
    """The stream that the unit tests compare with."""
    golden = bytes.fromhex((ROOT / "crates/arrow-stream/src/batch/golden.hex").read_text())
    tags = [("host", "web01"), ("dc", "lga")]
    rows = [("sys.cpu.user", 0, float(2**63), 2**63 - 1, tags, 0, 0), ("sys.cpu.user", 1000, -0.5, None, tags, 0, 0),
            ("sys.cpu.user", 2000, None, None, tags, 0, 0), ("é", 0, 7.0, 7, [], 1, 1)]
    table = pyarrow.ipc.open_stream(golden).read_all()
    table.validate(full=True)
    times = pc.cast(table["timestamp"], pyarrow.int64()).to_pylist()
    read = [tuple(row.values()) for row in table.set_column(1, "timestamp", pyarrow.array(times)).to_pylist()]
    assert read == [(metric, 1_767_571_200_000 + ms, *rest) for metric, ms, *rest in rows], read
    assert str(table.schema.field("timestamp").type) == "timestamp[ms, tz=UTC]"
    assert polars.read_ipc_stream(io.BytesIO(golden))["integer"].to_list() == [2**63 - 1, None, None, 7]
    assert sum(len(batch) for batch in nanoarrow.ArrayStream.from_readable(io.BytesIO(golden))) == 4
    for length in range(len(golden) - 8):
        try:
            pyarrow.ipc.open_stream(golden[:length]).read_all()
        except (pyarrow.ArrowInvalid, OSError):
            continue
        # A cut between two messages leaves out only the end mark, which pyarrow does not require: over HTTP the body is incomplete.
        assert golden[length:].startswith(b"\xff\xff\xff\xff"), length


def check_large():
    """A result of many batches and dictionaries."""
    table = table_of("m=none:arrow.m&m=sum:arrow.m&m=sum:arrow.large")
    assert table.num_rows == HOSTS * SECONDS + SECONDS + 2, table.num_rows
    with get("ms&arrays&m=none:arrow.m", "application/json") as response:
        expected = {group["tags"]["host"]: group["dps"] for group in json.load(response)}
    frame = table.to_pandas()
    assert str(frame["metric"].dtype) == "category" and str(frame["timestamp"].dtype) == "datetime64[ms, UTC]"
    one = table.filter(pc.equal(table["query"], 0))
    one = one.append_column("host", pc.map_lookup(one["tags"], pyarrow.scalar("host"), "first").cast(pyarrow.string()))
    times = pc.cast(one["timestamp"], pyarrow.int64())
    found = {}
    for host, time, value in zip(one["host"].to_pylist(), times.to_pylist(), one["value"].to_pylist()):
        found.setdefault(host, []).append([time, value])
    assert found == expected
    sums = duckdb.sql("SELECT tags['host'] host, count(*), sum(integer) FROM one GROUP BY ALL ORDER BY host").fetchall()
    sum_of = lambda number: sum(value for _, value in expected[f"host{number:02}"])
    assert sums == [(f"host{number:02}", SECONDS, sum_of(number)) for number in range(HOSTS)], sums[:2]
    integers = table.filter(pc.equal(table["query"], 2))["integer"].to_pylist()
    assert integers == [LARGE, -1], integers
    assert polars.from_arrow(table).height == table.num_rows
    stream = get("m=none:arrow.m&m=sum:arrow.m&m=sum:arrow.large").read()
    assert polars.read_ipc_stream(io.BytesIO(stream))["integer"].sum() == pc.sum(table["integer"]).as_py()
    assert sum(len(batch) for batch in nanoarrow.ArrayStream.from_readable(io.BytesIO(stream))) == table.num_rows
    arguments = ["query", "--target", data_service, "--format", "arrow", str(START), str(START + SECONDS)]
    printed = subprocess.run([tsdb, *arguments, "none:arrow.m", "sum:arrow.m", "sum:arrow.large"], check=True, stdout=subprocess.PIPE)
    order = [("series", "ascending"), ("timestamp", "ascending")]
    of_command = pyarrow.ipc.open_stream(printed.stdout).read_all().sort_by(order)
    assert of_command.to_pydict() == table.sort_by(order).to_pydict()
    call = ["--expr", "scale(sum:arrow.m{host=*},2)"]
    printed = subprocess.run([tsdb, *arguments, *call], check=True, stdout=subprocess.PIPE)
    doubled = pyarrow.ipc.open_stream(printed.stdout).read_all()
    assert pc.sum(doubled["value"]).as_py() == 2 * pc.sum(one["value"]).as_py()


def check_errors():
    try:
        get("m=sum:arrow.none")
        raise AssertionError("an unknown metric has a result")
    except urllib.error.HTTPError as error:
        assert error.code == 400 and "arrow.none" in json.load(error)["error"]["message"]
    try:
        # The second sub-query fails: its sum is infinite.
        table_of("m=none:arrow.m&m=sum:arrow.infinite")
        raise AssertionError("a result that is cut off was read as a whole")
    except (http.client.IncompleteRead, OSError):
        pass
    empty = table_of(f"m=sum:arrow.m&start={START + 10**6}&end={START + 10**6 + 1}").to_pandas()
    assert list(empty.columns) == ["metric", "timestamp", "value", "integer", "tags", "query", "series"] and empty.empty


def without_blanks(text):
    return [line.rstrip() for line in text.rstrip().splitlines()]


def check_guide():
    """The examples of the guide, with its points."""
    guide = (ROOT / "docs/guide/query.md").read_text()
    lines = re.findall(r"^(sys\.\S+) (\d+) (\d+) host=(\S+) dc=(\S+)$", guide, re.MULTILINE)
    assert len(lines) == 8, lines
    put([{"metric": metric, "timestamp": int(time), "value": int(value), "tags": {"host": host, "dc": dc}}
         for metric, time, value, host, dc in lines])
    _, section = guide.split("\n### As a table in Arrow's format\n")
    section = section.split("\n## ")[0].split("\n### ")[0]
    examples = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", section, re.DOTALL)
    assert len(examples) == 2, examples
    for example, expected in examples:
        code = example.replace("http://localhost:4242", server)
        printed = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout
        assert without_blanks(printed) == without_blanks(expected), f"{printed}in place of\n{expected}"


for number in range(HOSTS):
    put([point("arrow.m", second, second * number % 1000, host=f"host{number:02}") for second in range(SECONDS)])
put([point("arrow.large", 0, LARGE, host="a"), point("arrow.large", 1, -1, host="a")])
put([point("arrow.infinite", 0, 1.7e308, host=host) for host in "ab"])
check_golden()
check_large()
check_errors()
check_guide()
print(f"read in pyarrow {pyarrow.__version__}, pandas {pandas.__version__}, DuckDB {duckdb.__version__}, Polars {polars.__version__}, "
      f"nanoarrow {nanoarrow.__version__}")
