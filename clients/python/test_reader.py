"""Tests of the reader, against real servers and, for what they do not send, one of its own.

    OXTSDB_TSDB=path/to/tsdb PYTHONPATH=path/to/gen python -m unittest test_reader
"""

import datetime
import re
import subprocess
import sys
import threading
import unittest
from concurrent import futures

import grpc
from oxtsdb.data.v1.data_service_pb2_grpc import DataServiceServicer, add_DataServiceServicer_to_server
from oxtsdb.data.v1.query_pb2 import QueryResponse
from oxtsdb_reader import Reader, ResultError, select
from oxtsdb_writer import Writer, series
from test_writer import FOLDER, START_MS, Server

try:
    import pandas
except ImportError:
    pandas = None

END_MS = START_MS + 3_600_000
LARGE = 2**53 + 1


class FakeServer(DataServiceServicer):
    """Responds with the same frames to each query."""

    def __init__(self, test, frames, code=None):
        self.frames, self.code, self.requests, self.cancelled = frames, code, [], threading.Event()
        server = grpc.server(futures.ThreadPoolExecutor(4))
        add_DataServiceServicer_to_server(self, server)
        self.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        test.addCleanup(server.stop, None)

    def Query(self, request, context):
        self.requests.append(request)
        context.add_callback(self.cancelled.set)
        if self.code and len(self.requests) == 1:
            context.abort(self.code, "for now")
        yield from (QueryResponse(**frame) for frame in self.frames)


def head(number, **fields):
    return {"series": {"series": number, "metric": "m", "tags": {"host": str(number)}, **fields}}


def points(number, *seconds, **values):
    deltas = [1000 * (after - before) for before, after in zip(seconds, seconds[1:])]
    times = {"first": 1000 * seconds[0], "deltas": deltas, "last": 1000 * seconds[-1]}
    return {"points": {"series": number, "delta_timestamps": times, **values}}


END = {"statistics": {}}


class ReaderTest(unittest.TestCase):
    def reader(self, endpoint):
        reader = Reader(endpoint, timeout=30)
        self.addCleanup(reader.close)
        return reader

    def write(self, server):
        writer = Writer([server.endpoint])
        for host, offset in [("a", 0), ("b", 100)]:
            for second in range(0, 60, 10):
                writer.append(series("reader.m", {"host": host, "dc": "lga"}), START_MS + second * 1000, offset + second)
        for second, value in [(0, LARGE), (10, -1)]:
            writer.append(series("reader.large", {"value": "x"}), START_MS + second * 1000, value)
        for second, value in [(0, 0.5), (10, 2.5)]:
            writer.append(series("reader.float", {"host": "a"}), START_MS + second * 1000, value)
        writer.close()

    def test_reads_what_was_written(self):
        server = Server(self)
        self.write(server)
        reader = self.reader(server.endpoint)
        by_host = reader.series(START_MS, END_MS, select("reader.m", {"host": "*"}), select("reader.large"))
        times = [START_MS + second * 1000 for second in range(0, 60, 10)]
        found = [(one.query, one.metric, one.tags, one.aggregate_tags, one.timestamps.tolist(), one.values.tolist()) for one in by_host]
        tags = [{"host": host, "dc": "lga"} for host in "ab"]
        self.assertEqual(found, [
            (0, "reader.m", tags[0], [], times, list(range(0, 60, 10))),
            (0, "reader.m", tags[1], [], times, list(range(100, 160, 10))),
            (1, "reader.large", {"value": "x"}, [], times[:2], [LARGE, -1]),
        ])
        [total] = reader.series(START_MS, END_MS, select("reader.m", {"host": "a|b", "dc": "lga"}))[:1]
        self.assertEqual(total.tags, tags[0])
        start = datetime.datetime.fromtimestamp(START_MS / 1000, datetime.timezone.utc)
        minute = select("reader.m", aggregator="max", every=datetime.timedelta(minutes=1), downsample="sum")
        [total] = reader.series(start, None, minute)
        self.assertEqual((total.tags, total.aggregate_tags, total.values.tolist()), ({"dc": "lga"}, ["host"], [750.0]))
        [rate] = reader.series(datetime.timedelta(hours=5), None, select("reader.float", rate=True))
        self.assertEqual(rate.values.tolist(), [0.2])

    def test_an_unknown_metric_is_the_servers_error(self):
        with self.assertRaises(grpc.RpcError) as failed:
            self.reader(Server(self).endpoint).series(START_MS, END_MS, select("reader.none"))
        self.assertEqual(failed.exception.code(), grpc.StatusCode.NOT_FOUND)

    def test_points_of_several_series_may_come_in_turn(self):
        frames = [head(0), head(1), points(0, 1, 2, int_values=[1, 2]), points(1, 1, values=[0.5]),
                  points(0, 3, values=[2.5]), points(1, 4, values=[1.5]), {"done": {"series_count": 2}}, END]
        reader = self.reader(FakeServer(self, frames).endpoint)
        blocks = [(one.tags["host"], list(times), list(values)) for one, times, values in reader.blocks(0, None, select("m"))]
        self.assertEqual(blocks, [("0", [1000, 2000], [1, 2]), ("1", [1000], [0.5]), ("0", [3000], [2.5]), ("1", [4000], [1.5])])
        whole = {one.tags["host"]: (one.timestamps.tolist(), one.values.tolist()) for one in reader.series(0, None, select("m"))}
        self.assertEqual(whole, {"0": ([1000, 2000, 3000], [1.0, 2.0, 2.5]), "1": ([1000, 4000], [0.5, 1.5])})

    def test_an_incomplete_or_wrong_result_is_an_error(self):
        wrong = points(0, 1, 2, int_values=[1, 2])
        wrong["points"]["delta_timestamps"]["last"] = 1
        for frames, message in [
            ([head(0), points(0, 1, int_values=[1])], "before its last frame"),
            ([], "before its last frame"),
            ([points(7, 1, int_values=[1]), END], "undeclared series 7"),
            ([head(0), points(0, 1, 2, values=[1]), END], "1 values for 2 timestamps"),
            ([head(0), wrong, END], "2 values for 2 timestamps up to 2000"),
        ]:
            reader = self.reader(FakeServer(self, frames).endpoint)
            self.assertRaisesRegex(ResultError, message, reader.series, 0, None, select("m"))

    def test_a_server_that_is_away_for_now_is_asked_again(self):
        server = FakeServer(self, [head(0), points(0, 1, int_values=[1]), END], grpc.StatusCode.UNAVAILABLE)
        [one] = self.reader(server.endpoint).series(0, None, select("m"))
        self.assertEqual((one.values.tolist(), len(server.requests)), ([1], 2))
        server = FakeServer(self, [END], grpc.StatusCode.INVALID_ARGUMENT)
        self.assertRaises(grpc.RpcError, self.reader(server.endpoint).series, 0, None, select("m"))
        self.assertEqual(len(server.requests), 1)

    def test_breaking_off_cancels_the_query(self):
        server = FakeServer(self, iter([head(0)] + [points(0, 1, int_values=[1])] * 1_000_000))
        for _ in self.reader(server.endpoint).blocks(0, None, select("m")):
            break
        self.assertTrue(server.cancelled.wait(30))
        self.assertIsNotNone(next(server.frames, None))

    def test_arrays_are_numpys(self):
        try:
            import numpy as np
        except ImportError:
            self.skipTest("no NumPy")
        [one] = self.reader(FakeServer(self, [head(0), points(0, 1, 2, int_values=[LARGE, 2]), END]).endpoint).series(0, None, select("m"))
        self.assertEqual(np.asarray(one.values).dtype, np.int64)
        self.assertEqual(np.asarray(one.timestamps).view("datetime64[ms]")[1], np.datetime64("1970-01-01T00:00:02.000"))

    @unittest.skipUnless(pandas, "no pandas: tests/real/arrow.sh has it")
    def test_a_dataframe_has_a_row_for_each_point(self):
        server = Server(self)
        self.write(server)
        reader = self.reader(server.endpoint)
        frame = reader.dataframe(START_MS, END_MS, select("reader.m", {"host": "*"}), select("reader.large"))
        self.assertEqual(list(frame.columns), ["query", "metric", "dc", "host", "tag_value", "timestamp", "value"])
        self.assertEqual((len(frame), str(frame["value"].dtype)), (14, "int64"))
        self.assertEqual(frame["value"].iloc[12], LARGE)
        sums = frame.groupby(["metric", "host"], observed=True)["value"].sum()
        self.assertEqual(sums.to_dict(), {("reader.m", "a"): 150, ("reader.m", "b"): 750})
        self.assertEqual(frame["tag_value"].isna().sum(), 12)
        self.assertEqual(frame["timestamp"].iloc[1], pandas.Timestamp(START_MS + 10_000, unit="ms", tz="UTC"))
        wide = frame[frame["query"] == 0].pivot(index="timestamp", columns="host", values="value")
        self.assertEqual(wide.shape, (6, 2))
        empty = reader.dataframe(1_500_000_000_000, 1_500_000_001_000, select("reader.m"))
        self.assertEqual((len(empty), list(empty.columns)), (0, ["query", "metric", "timestamp", "value"]))

    def test_the_example_of_the_readme(self):
        server = Server(self)
        now = int(datetime.datetime.now().timestamp() * 1000)
        writer = Writer([server.endpoint])
        for host in "ab":
            for minute in range(30):
                writer.append(series("sys.cpu.user", {"host": host}), now - minute * 60_000, minute)
        writer.close()
        example = re.findall(r"```python\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)[1]
        example = example.replace("127.0.0.1:4243", server.endpoint)
        if not pandas:
            example = re.sub(r"^frame = .*\n(?:.*frame.*\n)*", "", example, flags=re.MULTILINE)
        output = subprocess.run([sys.executable, "-c", example], cwd=FOLDER, check=True, timeout=60, stdout=subprocess.PIPE, text=True)
        self.assertIn("{'host': 'a'}", output.stdout)


if __name__ == "__main__":
    unittest.main()
