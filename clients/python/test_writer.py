"""Tests of the writer, against real servers and, for limits and retries, against one of its own.

    OXTSDB_TSDB=path/to/tsdb PYTHONPATH=path/to/gen python -m unittest test_writer
"""

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
from concurrent import futures
from pathlib import Path

import grpc
from oxtsdb.common.v1.common_pb2 import ERROR_REASON_IMPLAUSIBLE_TIMESTAMP, ERROR_REASON_INVALID_NAME
from oxtsdb.data.v1 import data_service_pb2 as data
from oxtsdb.data.v1.data_service_pb2_grpc import DataServiceServicer, add_DataServiceServicer_to_server
from oxtsdb_writer import WriteError, Writer, series

FOLDER = Path(__file__).parent
START_MS = (int(time.time()) // 3600 - 2) * 3_600_000


class Server:
    """`tsdb serve` with a folder of its own; started again, it has the same ports."""

    def __init__(self, test, *flags):
        folder = tempfile.TemporaryDirectory()
        test.addCleanup(folder.cleanup)
        self.folder, self.flags = folder.name, flags
        self.ports = {"http": 0, "data": 0, "uid": 0}
        self.start()
        test.addCleanup(self.kill)

    def start(self):
        listen = [f"--{name}-listen=127.0.0.1:{port}" for name, port in self.ports.items()]
        command = [os.environ["OXTSDB_TSDB"], "serve", "--admin-listen=none", f"--data-dir={self.folder}/data"]
        command += [*listen, *self.flags]
        with open(f"{self.folder}/log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        ready = self.process.stdout.readline()
        if not ready.startswith("ready"):
            raise AssertionError(f"no server: {ready}{Path(self.folder, 'log').read_text()}")
        self.ports = {name: int(port) for name, port in re.findall(r"(\w+)=127.0.0.1:(\d+)", ready)}
        self.endpoint = f"127.0.0.1:{self.ports['data']}"

    def kill(self):
        self.process.kill()
        self.wait()

    def wait(self):
        self.process.wait(60)
        self.process.stdout.close()

    def points(self, metric):
        """Second from START_MS and value of all points of a metric with one series."""
        url = f"http://127.0.0.1:{self.ports['http']}/api/query?start={START_MS}&end={START_MS + 7_200_000}&m=sum:{metric}"
        try:
            with urllib.request.urlopen(url, timeout=30) as response:
                results = json.load(response)
        except urllib.error.HTTPError as error:
            if b"No such name" in error.read():
                return set()
            raise
        return {(int(second) - START_MS // 1000, value) for one in results for second, value in one["dps"].items()}


class FakeServer(DataServiceServicer):
    """Acknowledges each frame on `acknowledge.release()`, and records what it gets."""

    def __init__(self, test, **limits):
        defaults = {"window_frames": 64, "window_points": 1000, "max_frame_points": 1000}
        self.opened = {**defaults, "max_series": 100, "max_symbol_bytes": 1 << 20, "max_message_bytes": 1 << 24, **limits}
        self.acknowledge = threading.Semaphore(0)
        self.frames, self.streams, self.in_flight, self.most_in_flight = [], 0, 0, 0
        self.failures, self.breaks = {}, []
        server = grpc.server(futures.ThreadPoolExecutor(4))
        add_DataServiceServicer_to_server(self, server)
        self.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        test.addCleanup(server.stop, None)

    def WriteStream(self, requests, context):
        next(requests)
        self.streams += 1
        if self.breaks:
            context.set_trailing_metadata(self.breaks.pop(0))
            context.abort(grpc.StatusCode.INTERNAL, "broken")
        yield data.WriteStreamResponse(opened=self.opened)
        acked, sequence = len(self.frames), 0
        received = threading.Thread(target=self._receive, args=[requests], daemon=True)
        received.start()
        while received.is_alive() or acked < len(self.frames):
            if acked == len(self.frames):
                time.sleep(0.005)
            elif self.acknowledge.acquire(timeout=0.1):
                acked, sequence = acked + 1, sequence + 1
                self.in_flight -= 1
                ack = data.WriteStreamResponse.Ack(sequence=sequence, written=1)
                if acked in self.failures:
                    ack.failures.add(sequence=sequence, failures=self.failures.pop(acked))
                yield data.WriteStreamResponse(ack=ack)

    def _receive(self, requests):
        try:
            for request in requests:
                self.in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self.in_flight)
                self.frames.append(request.frame)
        except grpc.RpcError:
            pass

    def wait_for_frames(self, count):
        deadline = time.monotonic() + 30
        while len(self.frames) < count:
            if time.monotonic() > deadline:
                raise AssertionError(f"{len(self.frames)} frames, expected {count}")
            time.sleep(0.005)


def values(frame):
    return [value for block in frame.columns.blocks for value in [*block.int_values, *block.values]]


def seconds(frame):
    times = [time for block in frame.columns.blocks for time in absolute(block.delta_timestamps)]
    return [(time - START_MS) // 1000 for time in times]


def absolute(encoded):
    return itertools.accumulate([encoded.first, *encoded.deltas])


class WriterTest(unittest.TestCase):
    one = series("writer.test", {"host": "a"})

    def append(self, writer, numbers):
        for number in numbers:
            writer.append(self.one, START_MS + number * 1000, number)

    def test_a_drain_loses_nothing(self):
        servers = [Server(self), Server(self)]
        writer = Writer([server.endpoint for server in servers], batch_points=100)
        self.append(writer, range(1000))
        writer.flush()
        self.append(writer, range(1000, 2000))
        servers[0].process.send_signal(signal.SIGTERM)
        count = 2000
        while not servers[1].points("writer.test"):
            self.assertLess(count, 7000, "the writer stays with a server that drains")
            self.append(writer, range(count, count + 20))
            writer.flush()
            count += 20
        writer.close()
        servers[0].wait()
        servers[0].start()
        stored = [server.points("writer.test") for server in servers]
        self.assertEqual(stored[0] | stored[1], {(number, number) for number in range(count)})

    def test_a_killed_server_that_is_started_again_loses_nothing(self):
        server = Server(self)
        writer = Writer([server.endpoint], batch_points=100)
        self.append(writer, range(1000))
        writer.flush()
        self.append(writer, range(1000, 2000))
        server.kill()
        restart = threading.Timer(0.5, server.start)
        restart.start()
        self.append(writer, range(2000, 5000))
        writer.close()
        restart.join()
        self.assertEqual(server.points("writer.test"), {(number, number) for number in range(5000)})

    def test_reports_failed_points_with_which_and_why(self):
        failed = []
        writer = Writer([Server(self).endpoint], on_failed=lambda *point: failed.append(point), batch_points=10)
        invalid = series("not a name", {"host": "a"})
        for number in range(25):
            writer.append(invalid if number % 10 == 3 else self.one, START_MS + number * 1000, number + 0.5)
        writer.append(self.one, 1_500_000_000, 7)  # seconds in place of milliseconds
        writer.close()
        self.assertEqual(sorted(value for _, _, value, _ in failed), [3.5, 7, 13.5, 23.5])
        reasons = {value: error.reason for _, _, value, error in failed}
        invalid_name = ERROR_REASON_INVALID_NAME
        self.assertEqual(reasons, {3.5: invalid_name, 13.5: invalid_name, 23.5: invalid_name, 7: ERROR_REASON_IMPLAUSIBLE_TIMESTAMP})

    def test_keeps_the_window(self):
        server = FakeServer(self, window_frames=3)
        writer = Writer([server.endpoint], batch_points=10)
        appending = threading.Thread(target=self.append, args=[writer, range(100)], daemon=True)
        appending.start()
        server.wait_for_frames(3)
        appending.join(0.2)
        self.assertEqual((server.in_flight, appending.is_alive()), (3, True))
        server.acknowledge.release(100)
        appending.join()
        writer.close()
        self.assertEqual(server.most_in_flight, 3)
        self.assertEqual([value for frame in server.frames for value in values(frame)], list(range(100)))

    def test_splits_batches_at_the_limit_of_a_frame(self):
        server = FakeServer(self, max_frame_points=4)
        server.acknowledge.release(100)
        writer = Writer([server.endpoint])
        self.append(writer, range(10))
        writer.close()
        self.assertEqual([values(frame) for frame in server.frames], [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])

    def test_begins_a_new_stream_when_the_tables_are_full(self):
        server = FakeServer(self, max_series=3)
        server.acknowledge.release(100)
        writer = Writer([server.endpoint], batch_points=2)
        for number in range(8):
            writer.append(series("writer.test", {"host": str(number)}), START_MS, number)
        writer.close()
        self.assertEqual([value for frame in server.frames for value in values(frame)], list(range(8)))
        self.assertEqual(server.streams, 4)
        self.assertEqual([(frame.columns.first_symbol, frame.columns.first_series) for frame in server.frames], [(0, 0)] * 4)

    def test_resends_retryable_points(self):
        server = FakeServer(self)
        server.acknowledge.release(100)
        server.failures[1] = {"retryable": {"first": [2], "count": [3]}}
        writer = Writer([server.endpoint])
        self.append(writer, range(10))
        writer.close()
        self.assertEqual([values(frame) for frame in server.frames], [list(range(10)), [2, 3, 4]])

    def test_the_later_point_of_an_instant_wins_after_a_retry(self):
        server = FakeServer(self)
        server.acknowledge.release(100)
        server.failures[1] = {"retryable": {"first": [1], "count": [2]}}
        writer = Writer([server.endpoint], batch_points=4)
        points = [(0, 10), (1, 11), (2, 12), (1, 13), (2, 14), (3, 15), (2, 16.5), (1, 17)]
        for second, value in points:
            writer.append(self.one, START_MS + second * 1000, value)
        writer.close()
        # All others are stored already.
        self.assertEqual(values(server.frames[-1]), [11, 12, 13, 14, 16.5, 17])
        latest = {}
        for frame in server.frames:
            latest.update(zip(seconds(frame), values(frame)))
        self.assertEqual(latest, dict(points))

    def test_points_of_an_instant_keep_their_order_whatever_their_types(self):
        server = Server(self)
        writer = Writer([server.endpoint])
        other = series("writer.other", {"host": "a"})
        for name, second, value in [(self.one, 1, 0.5), (other, 1, 1), (self.one, 1, 2), (other, 1, 2.5), (self.one, 2, 3.5)]:
            writer.append(name, START_MS + second * 1000, value)
        writer.close()
        self.assertEqual(server.points("writer.test"), {(1, 2), (2, 3.5)})
        self.assertEqual(server.points("writer.other"), {(1, 2.5)})

    def test_points_of_one_type_are_one_block(self):
        server = FakeServer(self)
        server.acknowledge.release(100)
        writer = Writer([server.endpoint])
        for number in range(10):
            writer.append(self.one, START_MS + number * 1000, number if number % 2 else number + 0.5)
        writer.close()
        self.assertEqual(len(server.frames[0].columns.blocks), 2)

    def test_resends_after_a_reset_behind_a_proxy_but_not_after_an_error_of_a_server(self):
        server = FakeServer(self)
        server.acknowledge.release(100)
        server.breaks = [[]]
        writer = Writer([server.endpoint])
        self.append(writer, range(10))
        writer.flush()
        self.assertEqual([values(frame) for frame in server.frames], [list(range(10))])
        server.breaks = [[("grpc-status-details-bin", b"\x08\x0d")]]
        writer = Writer([server.endpoint])
        self.append(writer, range(10))
        self.assertRaisesRegex(WriteError, "INTERNAL", writer.flush)

    def test_raises_when_patience_ends_and_keeps_the_points(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
        writer = Writer([f"127.0.0.1:{port}"], patience=0.3)
        self.append(writer, range(10))
        self.assertRaisesRegex(WriteError, "UNAVAILABLE", writer.flush)
        server = FakeServer(self)
        server.acknowledge.release(100)
        writer._endpoints = iter([server.endpoint])
        writer.close()
        self.assertEqual(values(server.frames[0]), list(range(10)))

    def test_the_example_of_the_readme(self):
        server = Server(self)
        example = re.search(r"```python\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)[1]
        example = example.replace('"127.0.0.1:4243", "127.0.0.1:5243"', f'"{server.endpoint}"')
        subprocess.run([sys.executable, "-c", example], cwd=FOLDER, check=True, timeout=60)
        url = f"http://127.0.0.1:{server.ports['http']}/api/query?start=1h-ago&end={int(time.time()) + 3600}&m=sum:sys.cpu.user"
        with urllib.request.urlopen(url, timeout=30) as response:
            self.assertEqual(len(json.load(response)[0]["dps"]), 1000)


if __name__ == "__main__":
    unittest.main()
