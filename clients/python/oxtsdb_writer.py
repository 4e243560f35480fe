"""Writes points over WriteStream: batches them, and resends what no server has acknowledged. See README.md."""

import itertools
import queue
import threading
import time
import grpc
from oxtsdb.data.v1.data_service_pb2 import WriteStreamRequest
from oxtsdb.data.v1.data_service_pb2_grpc import DataServiceStub
from oxtsdb.data.v1.point_pb2 import TIME_UNIT_MILLISECONDS, Columns, DeltaTimestamps, WriteOptions

TRANSIENT = [grpc.StatusCode[name] for name in ("UNAVAILABLE", "ABORTED", "DEADLINE_EXCEEDED", "CANCELLED")]
KEEPALIVE = [("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 10_000)]
RETRY_PAUSE, MIN_BACKOFF, MAX_BACKOFF = 1.0, 0.05, 2.0  # seconds

def series(metric, tags):
    return metric, *itertools.chain(*sorted(tags.items()))

def is_transient(error):
    """A proxy reports a stream that was reset as INTERNAL; a server says in the details why it failed."""
    has_details = any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata() or ())
    return error.code() in TRANSIENT or (error.code() == grpc.StatusCode.INTERNAL and not has_details)

class WriteError(Exception):
    """A server failed, or rejected points for now. They are kept: flush() tries again."""

class _Stream:
    """Tables and window of a stream: its last `sent` frames, with `points` points, are not acknowledged."""
    def __init__(self, channel, options):
        self.channel, self.requests, self.draining, self.failures = channel, queue.SimpleQueue(), False, []
        self.sequence = self.sent = self.points = self.symbol_bytes = 0
        self.symbols, self.series, self.limits = {}, {}, None
        self.requests.put(WriteStreamRequest(open={"client_name": "oxtsdb_writer.py", "options": options}))
        self.responses = DataServiceStub(channel).WriteStream(iter(self.requests.get, None))

    def has_capacity(self, batch):
        """Whether the window admits a batch. Full tables drain the stream: the next one has empty tables."""
        count, symbol_bytes = len(self.series) + len(batch), self.symbol_bytes * 2
        is_full = count > self.limits.max_series or symbol_bytes > self.limits.max_symbol_bytes
        self.draining |= is_full and self.sequence > 0
        is_within = self.sent < self.limits.window_frames and self.points + len(batch) <= self.limits.window_points
        return not self.draining and (is_within or self.sent == 0)

    def send(self, batch):
        columns = Columns(first_symbol=len(self.symbols), first_series=len(self.series))
        for names in {point[0]: None for point in batch if point[0] not in self.series}:
            for name in names:
                if name not in self.symbols:
                    self.symbols[name] = len(self.symbols)
                    self.symbol_bytes += len(name.encode())
                    columns.new_symbols.append(name)
            metric, *tags = (self.symbols[name] for name in names)
            self.series[names] = len(self.series)
            columns.new_series.add(metric_symbol=metric, tag_symbols=tags)
        for field, kind in (("int_values", int), ("values", float)):
            if points := [point for point in batch if isinstance(point[2], kind)]:
                deltas = [after[1] - before[1] for before, after in itertools.pairwise(points)]
                block = columns.blocks.add(series=[self.series[point[0]] for point in points])
                block.delta_timestamps.CopyFrom(DeltaTimestamps(first=points[0][1], deltas=deltas, last=points[-1][1]))
                getattr(block, field).extend(point[2] for point in points)
        self.sequence, self.sent, self.points = self.sequence + 1, self.sent + 1, self.points + len(batch)
        self.requests.put(WriteStreamRequest(frame={"sequence": self.sequence, "columns": columns}))

class Writer:
    def __init__(self, endpoints, on_failed=lambda series, timestamp, value, error: None, *, options=None,
                 connect=lambda endpoint: grpc.insecure_channel(endpoint, KEEPALIVE), batch_points=4096, patience=60.0):
        self._endpoints, self._connect, self._on_failed = itertools.cycle(endpoints), connect, on_failed
        self._options = options or WriteOptions(time_unit=TIME_UNIT_MILLISECONDS, max_errors=10_000)
        self._batch_points, self._patience = batch_points, patience
        self._backoff, self._failing_since = MIN_BACKOFF, None
        # `_queue` has the batches that are not acknowledged, sent ones first.
        self._lock, self._stream, self._queue, self._batch = threading.RLock(), None, [], []

    def append(self, series, timestamp, value):
        value = value if isinstance(value, int) else float(value)
        if not 0 <= timestamp < 2**62 or isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError(f"timestamp {timestamp} or value {value} does not fit 64 bits")
        with self._lock:
            self._batch.append((series, timestamp, value))
            if len(self._batch) >= self._batch_points:
                self._write(lambda: self._stream.sent == len(self._queue))

    def flush(self):
        with self._lock:
            self._write(lambda: not self._queue)

    def close(self):
        self.flush()
        self._end_stream()

    def _write(self, is_done):
        # In the order of a frame's blocks, in which the server numbers failed points.
        self._queue += [sorted(self._batch, key=lambda point: isinstance(point[2], float))] if self._batch else []
        self._batch = []
        while self._queue:
            try:
                self._stream = self._stream or _Stream(self._connect(next(self._endpoints)), self._options)
                self._send(self._stream)
                if is_done():
                    return
                self._receive(self._stream)
            except grpc.RpcError as error:
                self._end_stream()
                self._pause(is_transient(error), self._backoff, error)
                self._backoff = min(self._backoff * 2, MAX_BACKOFF)

    def _send(self, stream):
        while stream.limits and stream.sent < len(self._queue):
            batch, limit = self._queue[stream.sent], min(stream.limits.max_frame_points, stream.limits.window_points)
            if len(batch) > limit:
                self._queue[stream.sent : stream.sent + 1] = [batch[:limit], batch[limit:]]
            elif not stream.has_capacity(batch):
                return
            else:
                stream.send(batch)

    def _receive(self, stream):
        if stream.draining and stream.sent == 0:
            stream.requests.put(None)
        if (response := next(stream.responses, None)) is None:
            return self._end_stream()
        stream.limits = response.opened if response.HasField("opened") else stream.limits
        stream.draining |= response.HasField("draining")
        stream.failures += response.ack.failures
        if response.ack.written:
            self._backoff, self._failing_since = MIN_BACKOFF, None
        while stream.sent and stream.sequence - stream.sent < response.ack.sequence:
            batch = self._queue.pop(0)
            stream.sent, stream.points = stream.sent - 1, stream.points - len(batch)
            while stream.failures and stream.failures[0].sequence <= stream.sequence - stream.sent:
                self._report(batch, stream.failures.pop(0).failures)

    def _report(self, batch, failures):
        errors = {one.first + index: one.error for one in failures.errors for index in range(one.count)}
        for first, count in zip(failures.permanent.first, failures.permanent.count):
            for index in range(first, first + count):
                self._on_failed(*batch[index], errors.get(index))
        if retried := failures.retryable.first:
            runs = zip(retried, failures.retryable.count)
            self._queue.append([point for first, count in runs for point in batch[first : first + count]])
            self._pause(True, RETRY_PAUSE, errors.get(retried[0]))

    def _pause(self, is_transient, seconds, error):
        self._failing_since = self._failing_since or time.monotonic()
        if not is_transient or time.monotonic() - self._failing_since > self._patience:
            self._failing_since = None
            raise WriteError(str(error))
        time.sleep(seconds)

    def _end_stream(self):
        if self._stream:
            self._stream.requests.put(None)
            self._stream.channel.close()
        self._stream = None
