"""What all checks use: the count of checks, addresses of series, and statuses with their details."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "gen"))

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from oxtsdb.common.v1 import common_pb2 as common

TIMEOUT = 30
HOUR_MS = 3_600_000
# QueryLast looks back from the server's clock, so all points are recent; rows are hours.
START_MS = (int(time.time() * 1000) // HOUR_MS - 2) * HOUR_MS
SERVICE_CONFIG = Path(__file__).parents[3] / "proto" / "service_config.json"
CHECKS = 0


def check(what, actual, expected):
    global CHECKS
    if actual != expected:
        sys.exit(f"{what}: expected {expected!r}, got {actual!r}")
    CHECKS += 1


def connect(address):
    return grpc.insecure_channel(address, options=[("grpc.service_config", SERVICE_CONFIG.read_text())])


def series_name(metric, host):
    return common.SeriesName(metric=metric, tags=[common.Tag(key="host", value=host)])


def rejected(what, call, code, reason):
    """The details of the error that a call ends with, by their type."""
    try:
        call()
    except grpc.RpcError as error:
        check(f"{what}: code", error.code(), code)
        details = {}
        for detail in rpc_status.from_call(error).details:
            for message in [error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()]:
                if detail.Unpack(message):
                    details[type(message)] = message
        info = details[error_details_pb2.ErrorInfo]
        check(f"{what}: domain and reason", (info.domain, info.reason), ("oxtsdb.dev", reason))
        return details
    sys.exit(f"{what}: not rejected")
