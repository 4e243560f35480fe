"""Assigns, looks up, writes in each form and queries, with the stubs that grpcio-tools makes.

    check.py DATA_ADDRESS UID_ADDRESS

Ends with 1 at the first answer that is not as the contract says.
"""

import queue
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "gen"))

import grpc
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status
from oxtsdb.common.v1 import common_pb2 as common
from oxtsdb.data.v1 import data_admin_service_pb2 as data_admin
from oxtsdb.data.v1 import data_service_pb2 as data
from oxtsdb.data.v1 import data_admin_service_pb2_grpc, data_service_pb2_grpc, point_pb2, query_pb2
from oxtsdb.uid.v1 import uid_service_pb2 as uid
from oxtsdb.uid.v1 import uid_service_pb2_grpc

START_MS = 1_500_000_000_000
TIMEOUT = 30
CHECKS = 0


def check(what, actual, expected):
    global CHECKS
    if actual != expected:
        sys.exit(f"{what}: expected {expected!r}, got {actual!r}")
    CHECKS += 1


def health_and_reflection(channel, service):
    stub = health_pb2_grpc.HealthStub(channel)
    answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT)
    check(f"health of {service}", answer.status, health_pb2.HealthCheckResponse.SERVING)
    listed = ProtoReflectionDescriptorDatabase(channel).get_services()
    check(f"reflection lists {service}", service in listed, True)


def uids(stub):
    names = [
        uid.UidName(kind=common.UID_KIND_METRIC, name="python.metric"),
        uid.UidName(kind=common.UID_KIND_TAG_KEY, name="host"),
        uid.UidName(kind=common.UID_KIND_TAG_VALUE, name="pümpernickel"),
    ]
    assigned = stub.GetOrCreateUids(uid.GetOrCreateUidsRequest(names=names), timeout=TIMEOUT).results
    check("new names are created", [result.created for result in assigned], [True] * 3)
    check("first UIDs", [result.uid for result in assigned], [b"\0\0\1"] * 3)
    again = stub.GetOrCreateUids(uid.GetOrCreateUidsRequest(names=names), timeout=TIMEOUT).results
    check("known names are not", [result.created for result in again], [False] * 3)

    values = [uid.UidValue(kind=name.kind, uid=result.uid) for name, result in zip(names, assigned)]
    found = stub.LookupNames(uid.LookupNamesRequest(uids=values), timeout=TIMEOUT).results
    check("names of the UIDs", [result.name for result in found], [name.name for name in names])
    unknown = uid.UidName(kind=common.UID_KIND_METRIC, name="unknown")
    found = stub.LookupUids(uid.LookupUidsRequest(names=[names[0], unknown]), timeout=TIMEOUT).results
    check("a known name", found[0].uid, b"\0\0\1")
    check("an unknown name", found[1].error.reason, common.ERROR_REASON_NAME_NOT_FOUND)
    check("its code", found[1].error.code, grpc.StatusCode.NOT_FOUND.value[0])
    page = stub.SuggestNames(
        uid.SuggestNamesRequest(kind=common.UID_KIND_METRIC, prefix="python"), timeout=TIMEOUT
    )
    check("suggestions", [mapping.name for mapping in page.mappings], ["python.metric"])


OPTIONS = point_pb2.WriteOptions(time_unit=point_pb2.TIME_UNIT_MILLISECONDS)


def series(metric, host, count, **values):
    """Points of one series, one a second."""
    name = common.SeriesName(metric=metric, tags=[common.Tag(key="host", value=host)])
    timestamps = [START_MS + second * 1000 for second in range(count)]
    return point_pb2.TimeSeries(name=name, timestamps=timestamps, **values)


def write_simple(stub):
    request = data.WriteRequest(
        series=[
            series("python.metric", "a", 10, int_values=range(10)),
            series("python.metric", "b", 10, values=[second + 0.5 for second in range(10)]),
            series("python metric", "a", 1, int_values=[1]),
        ],
        options=OPTIONS,
    )
    response = stub.Write(request, timeout=TIMEOUT)
    check("points written", (response.written, response.failed), (20, 1))
    check("the failed run", list(response.failures.permanent.first), [20])
    check("its length", list(response.failures.permanent.count), [1])
    check("nothing to retry", response.failures.HasField("retryable"), False)
    check("why", response.failures.errors[0].error.reason, common.ERROR_REASON_INVALID_NAME)


def columns(metric, first, count):
    """Points of one series; its declaration is sent with the first of a table."""
    message = point_pb2.Columns(
        blocks=[
            point_pb2.Columns.Block(
                series=[0],
                delta_timestamps=point_pb2.DeltaTimestamps(
                    first=START_MS + first * 1000,
                    deltas=[1000] * (count - 1),
                    last=START_MS + (first + count - 1) * 1000,
                ),
                int_values=range(first, first + count),
            )
        ]
    )
    if first == 0:
        message.new_symbols.extend([metric, "host", "a"])
        message.new_series.add(metric_symbol=0, tag_symbols=[1, 2])
    return message


def write_columns(stub):
    answer = stub.WriteColumns(
        data.WriteColumnsRequest(columns=columns("python.columns", 0, 1000), options=OPTIONS), timeout=TIMEOUT
    )
    check("points written in columns", (answer.written, answer.failed), (1000, 0))


def write_stream(stub):
    requests = queue.SimpleQueue()
    requests.put(data.WriteStreamRequest(open=data.WriteStreamRequest.Open(client_name="check.py", options=OPTIONS)))
    responses = stub.WriteStream(iter(requests.get, None), timeout=TIMEOUT)
    opened = next(responses)
    check("the stream is opened", opened.WhichOneof("message"), "opened")
    check("its window", opened.opened.window_frames > 0 and opened.opened.window_points >= 100, True)
    for frame in range(10):
        requests.put(
            data.WriteStreamRequest(
                frame=data.WriteStreamRequest.Frame(
                    sequence=frame + 1, columns=columns("python.stream", frame * 100, 100)
                )
            )
        )
    written = sequence = 0
    while sequence < 10:
        ack = next(responses).ack
        check("acks are in order", ack.sequence > sequence, True)
        sequence, written = ack.sequence, written + ack.written
    check("points written on the stream", written, 1000)
    requests.put(None)
    check("nothing after the last ack", list(responses), [])


def query(stub, metric, **options):
    request = query_pb2.QueryRequest(
        range=common.TimeRange(start_ms=START_MS, end_ms=START_MS + 3_600_000),
        queries=[
            query_pb2.SubQuery(
                metric=query_pb2.SubQuery.MetricSource(metric=metric, filters=options.pop("filters", [])),
                **options,
            )
        ],
    )
    groups, done = {}, False
    for response in stub.Query(request, timeout=TIMEOUT):
        frame = response.WhichOneof("frame")
        check("frames end with the statistics", done, False)
        if frame == "series":
            groups[response.series.series] = (dict(response.series.tags), [])
        elif frame == "points":
            values = response.points.int_values or response.points.values
            for instant, value in zip(response.points.timestamps_ms, values, strict=True):
                groups[response.points.series][1].append(((instant - START_MS) // 1000, value))
        elif frame == "statistics":
            done = True
    check("the answer is complete", done, True)
    return sorted(groups.values(), key=lambda group: sorted(group[0].items()))


def function(function):
    return query_pb2.Aggregator(function=function)


def queries(stub, admin):
    for metric in ["python.columns", "python.stream"]:
        expected = [({"host": "a"}, [(second, second) for second in range(1000)])]
        check(metric, query(stub, metric, aggregator=function(query_pb2.AGGREGATE_FUNCTION_NONE)), expected)
    by_host = query_pb2.TagFilter(
        key="host", type=query_pb2.TagFilter.FILTER_TYPE_WILDCARD, pattern="*", group_by=True
    )
    expected = [
        ({"host": "a"}, [(second, second) for second in range(10)]),
        ({"host": "b"}, [(second, second + 0.5) for second in range(10)]),
    ]
    answer = query(stub, "python.metric", aggregator=function(query_pb2.AGGREGATE_FUNCTION_SUM), filters=[by_host])
    check("a group for each host", answer, expected)
    answer = query(stub, "python.metric", aggregator=function(query_pb2.AGGREGATE_FUNCTION_SUM))
    check("the sum over hosts", answer, [({}, [(second, 2 * second + 0.5) for second in range(10)])])

    targets = [query_pb2.QueryLastRequest.Target(series=series("python.metric", "nobody"))]
    responses = list(stub.QueryLast(query_pb2.QueryLastRequest(targets=targets), timeout=TIMEOUT))
    check("no last point of an unknown series", sum(len(response.points) for response in responses), 0)

    rows = [
        row
        for response in admin.ScanTable(
            data_admin.ScanTableRequest(
                range=common.TimeRange(start_ms=0, end_ms=START_MS + 3_600_000),
            ),
            timeout=TIMEOUT,
        )
        for response_row in [response.rows]
        for row in response_row
    ]
    check("rows of four series", len({row.tsuid for row in rows}), 4)


def refused(what, call, code, reason):
    """The details of the error that a call ends with."""
    try:
        call()
    except grpc.RpcError as error:
        check(f"{what}: code", error.code(), code)
        details = {}
        for detail in rpc_status.from_call(error).details:
            for message in [error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()]:
                if detail.Unpack(message):
                    details[type(message)] = message
        info = details[error_details_pb2.ErrorInfo]
        check(f"{what}: domain and reason", (info.domain, info.reason), ("oxtsdb.dev", reason))
        return details
    sys.exit(f"{what}: not refused")


def errors(stub):
    details = refused(
        "an unknown metric",
        lambda: query(stub, "no.such.metric", aggregator=function(query_pb2.AGGREGATE_FUNCTION_SUM)),
        grpc.StatusCode.NOT_FOUND,
        "NAME_NOT_FOUND",
    )
    info = details[error_details_pb2.ErrorInfo]
    check("it is named", info.metadata["name"], "no.such.metric")
    details = refused(
        "no aggregator",
        lambda: query(stub, "python.metric"),
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_FIELD",
    )
    fields = [violation.field for violation in details[error_details_pb2.BadRequest].field_violations]
    check("the field is named", len(fields) == 1 and "aggregator" in fields[0], True)
    refused(
        "no points",
        lambda: stub.Write(data.WriteRequest(options=OPTIONS), timeout=TIMEOUT),
        grpc.StatusCode.INVALID_ARGUMENT,
        "BATCH_TOO_LARGE",
    )


def main(data_address, uid_address):
    with grpc.insecure_channel(data_address) as channel:
        with grpc.insecure_channel(uid_address) as uid_channel:
            health_and_reflection(channel, "oxtsdb.data.v1.DataService")
            health_and_reflection(uid_channel, "oxtsdb.uid.v1.UidService")
            uids(uid_service_pb2_grpc.UidServiceStub(uid_channel))
        stub = data_service_pb2_grpc.DataServiceStub(channel)
        write_simple(stub)
        write_columns(stub)
        write_stream(stub)
        queries(stub, data_admin_service_pb2_grpc.DataAdminServiceStub(channel))
        errors(stub)
    print(f"stubs in Python: {CHECKS} checks passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
