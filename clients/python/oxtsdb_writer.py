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

def is_float(point):
    return isinstance(point[2], float)

def by_type(batch):
    """A block has one type of value. Points keep their order if two have one instant, because the later one wins."""
    return batch if len({point[:2] for point in batch}) < len(batch) else sorted(batch, key=is_float)

def indexes(runs):
    return [index for first, count in zip(runs.first, runs.count) for index in range(first, first + count)]

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
        for field, points in itertools.groupby(batch, lambda point: "values" if is_float(point) else "int_values"):
            points = list(points)
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
        # `_queue` has the batches that are not acknowledged, sent ones first. `_again` has acknowledged points to send
        # before them: no frame is sent until all in flight are acknowledged.
        self._lock, self._stream, self._queue, self._batch = threading.RLock(), None, [], []
        self._again, self._cause = [], None

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
            self._write(lambda: False)

    def close(self):
        self.flush()
        self._end_stream()

    def _write(self, is_done):
        self._queue += [by_type(self._batch)] if self._batch else []
        self._batch = []
        while self._queue or self._again:
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
        while stream.limits and not self._again and stream.sent < len(self._queue):
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
            failures = []
            while stream.failures and stream.failures[0].sequence <= stream.sequence - stream.sent:
                failures.append(stream.failures.pop(0).failures)
            if failures or self._again:
                self._report(batch, failures)
        if self._again and stream.sent == 0:
            self._requeue()
            self._pause(True, RETRY_PAUSE, self._cause)

    def _report(self, batch, failures):
        """Reports points that failed for good. Sends those again that may succeed later, and behind them all later
        points of their instants, which have to win."""
        errors = {one.first + index: one.error for each in failures for one in each.errors for index in range(one.count)}
        permanent = [index for each in failures for index in indexes(each.permanent)]
        retryable = {index for each in failures for index in indexes(each.retryable)}
        for index in permanent:
            self._on_failed(*batch[index], errors.get(index))
        if retryable:
            self._cause = errors.get(min(retryable))
        instants = {point[:2] for point in self._again}
        for index, point in enumerate(batch):
            if index in retryable or point[:2] in instants and index not in permanent:
                self._again.append(point)
                instants.add(point[:2])

    def _requeue(self):
        self._queue[:0] = [by_type(self._again)] if self._again else []
        self._again = []

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
        self._requeue()
