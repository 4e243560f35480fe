"""A drain between frames: what the first server did not acknowledge goes to the second."""

import os
import signal

import grpc
from google.rpc import error_details_pb2
from support import check, rejected
from writes import Stream, columns

FRAMES = range(20)


def frame(number, is_first):
    return columns("python.drain", number * 100, 100, is_first)


def drain(first, second, first_server):
    stream, idle = Stream(first), Stream(first)
    for number in FRAMES[:10]:
        stream.send(frame(number, number == 0))
    acked = next(stream.responses).ack.sequence
    os.kill(first_server, signal.SIGTERM)
    is_draining = False
    while not is_draining or acked < stream.sequence:
        response = next(stream.responses)
        if response.WhichOneof("message") == "draining":
            is_draining = True
            check("it waits", response.draining.grace.ToMilliseconds() > 0, True)
        else:
            acked = response.ack.sequence
    stream.close()
    check("a closed stream ends with OK", list(stream.responses), [])

    details = rejected(
        "a stream that is not closed",
        lambda: list(idle.responses),
        grpc.StatusCode.UNAVAILABLE,
        "DRAINING",
    )
    delay = details[error_details_pb2.RetryInfo].retry_delay
    check("when to retry", delay.ToMilliseconds() > 0, True)
    idle.close()

    stream = Stream(second)
    for number in FRAMES[acked:]:
        stream.send(frame(number, number == acked))
    stream.close()
    written = sum(response.ack.written for response in stream.responses)
    check("points written to the second server", written, len(FRAMES[acked:]) * 100)
