"""Writes in every form, and the four mistakes."""

import queue

import grpc
from google.rpc import error_details_pb2
from support import START_MS, TIMEOUT, check, rejected, series_name
from oxtsdb.common.v1 import common_pb2 as common
from oxtsdb.data.v1 import data_service_pb2 as data
from oxtsdb.data.v1 import point_pb2 as point

MILLISECONDS = point.WriteOptions(time_unit=point.TIME_UNIT_MILLISECONDS)


def time_series(metric, host, count, **values):
    timestamps = [START_MS + second * 1000 for second in range(count)]
    return point.TimeSeries(name=series_name(metric, host), timestamps=timestamps, **values)


def write(stub):
    series = [
        time_series("python.metric", "a", 10, int_values=range(10)),
        time_series("python.metric", "b", 10, values=[second + 0.5 for second in range(10)]),
        time_series("python metric", "a", 1, int_values=[1]),
    ]
    result = stub.Write(data.WriteRequest(series=series, options=MILLISECONDS), timeout=TIMEOUT)
    check("points written", (result.written, result.failed), (20, 1))
    failures = result.failures
    check("failed for good", (list(failures.permanent.first), list(failures.permanent.count)), ([20], [1]))
    check("nothing to retry", len(failures.retryable.first), 0)
    check("the failed point", (failures.errors[0].first, failures.errors[0].count), (20, 1))
    check("why", failures.errors[0].error.reason, common.ERROR_REASON_INVALID_NAME)


def columns(metric, first, count, is_first, with_deltas=False):
    """Points of one series, which the first message of a table declares."""
    timestamps = [START_MS + second * 1000 for second in range(first, first + count)]
    block = point.Columns.Block(series=[0], int_values=range(first, first + count))
    if with_deltas:
        block.delta_timestamps.first = timestamps[0]
        block.delta_timestamps.deltas.extend([1000] * (count - 1))
        block.delta_timestamps.last = timestamps[-1]
    else:
        block.timestamps.extend(timestamps)
    message = point.Columns(blocks=[block])
    if is_first:
        message.new_symbols.extend([metric, "host", "a"])
        message.new_series.add(metric_symbol=0, tag_symbols=[1, 2])
    return message


def write_columns(stub):
    for metric, with_deltas in [("python.columns", False), ("python.deltas", True)]:
        request = data.WriteColumnsRequest(columns=columns(metric, 0, 1000, True, with_deltas), options=MILLISECONDS)
        result = stub.WriteColumns(request, timeout=TIMEOUT)
        check(f"points written to {metric}", (result.written, result.failed), (1000, 0))


class Stream:
    """A write stream: requests go into a queue, responses are read one by one."""

    def __init__(self, stub):
        self.requests = queue.SimpleQueue()
        self.responses = stub.WriteStream(iter(self.requests.get, None), timeout=TIMEOUT)
        self.sequence = 0
        opening = data.WriteStreamRequest.Open(client_name="check.py", options=MILLISECONDS)
        self.requests.put(data.WriteStreamRequest(open=opening))
        self.opened = next(self.responses).opened

    def send(self, message):
        self.sequence += 1
        frame = data.WriteStreamRequest.Frame(sequence=self.sequence, columns=message)
        self.requests.put(data.WriteStreamRequest(frame=frame))

    def close(self):
        self.requests.put(None)


def write_stream(stub):
    stream = Stream(stub)
    for _, limit in stream.opened.ListFields():
        check("a limit of the stream", limit > 0, True)
    check("limits of the stream", len(stream.opened.ListFields()), 6)
    for frame in range(10):
        stream.send(columns("python.stream", frame * 100, 100, frame == 0))
    written = sequence = 0
    while sequence < 10:
        ack = next(stream.responses).ack
        check("acks are in order", ack.sequence > sequence, True)
        sequence, written = ack.sequence, written + ack.written
    check("points written on the stream", written, 1000)
    stream.close()
    check("nothing after the last ack", list(stream.responses), [])


def repeated_declaration(stub):
    stream = Stream(stub)
    stream.send(columns("python.declared", 7, 1, True))
    acked = next(stream.responses).ack
    check("the frame before the mistake", (acked.sequence, acked.written), (1, 1))
    stream.send(columns("python.other", 7, 1, True))
    details = rejected(
        "symbols declared from 0 again",
        lambda: list(stream.responses),
        grpc.StatusCode.INVALID_ARGUMENT,
        "DECLARATION_OUT_OF_SEQUENCE",
    )
    check("the expected number", details[error_details_pb2.ErrorInfo].metadata["expected"], "3")
    stream.close()


def not_stored(what, result, count, reason):
    check(f"{what}: nothing is stored", (result.written, result.failed), (0, count))
    permanent = result.failures.permanent
    check(f"{what}: all points", (list(permanent.first), list(permanent.count)), ([0], [count]))
    check(f"{what}: why", result.failures.errors[0].error.reason, reason)


def mistakes(stub):
    repeated_declaration(stub)
    last = START_MS + 3000
    for what, deltas in [
        ("offsets as deltas", [1000, 2000, 3000]),
        ("absolute timestamps as deltas", [START_MS + 1000, START_MS + 2000, last]),
    ]:
        message = columns("python.mistake", 0, 4, True)
        message.blocks[0].ClearField("timestamps")
        encoding = point.DeltaTimestamps(first=START_MS, deltas=deltas, last=last)
        message.blocks[0].delta_timestamps.CopyFrom(encoding)
        result = stub.WriteColumns(
            data.WriteColumnsRequest(columns=message, options=MILLISECONDS), timeout=TIMEOUT
        )
        not_stored(what, result, 4, common.ERROR_REASON_INVALID_TIMESTAMP)
    seconds = point.TimeSeries(
        name=series_name("python.mistake", "a"), timestamps=[START_MS // 1000, START_MS // 1000 + 1], values=[1, 2]
    )
    result = stub.Write(data.WriteRequest(series=[seconds], options=MILLISECONDS), timeout=TIMEOUT)
    not_stored("seconds as milliseconds", result, 2, common.ERROR_REASON_IMPLAUSIBLE_TIMESTAMP)
    rejected(
        "no unit",
        lambda: stub.Write(data.WriteRequest(series=[seconds]), timeout=TIMEOUT),
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_FIELD",
    )
