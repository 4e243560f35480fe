"""Queries, last points and the details of errors."""

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2
from support import HOUR_MS, START_MS, TIMEOUT, check, rejected, series_name
from oxtsdb.common.v1 import common_pb2 as common
from oxtsdb.data.v1 import data_service_pb2 as data
from oxtsdb.data.v1 import query_pb2
from writes import MILLISECONDS

SUM = query_pb2.Aggregator(function=query_pb2.AGGREGATE_FUNCTION_SUM)
NONE = query_pb2.Aggregator(function=query_pb2.AGGREGATE_FUNCTION_NONE)


def timestamps(points):
    if not points.HasField("delta_timestamps"):
        return list(points.timestamps_ms)
    instants = [points.delta_timestamps.first]
    for delta in points.delta_timestamps.deltas:
        instants.append(instants[-1] + delta)
    check("the encoding adds up", instants[-1], points.delta_timestamps.last)
    return instants


def query(stub, metric, aggregator, filters=(), **options):
    request = query_pb2.QueryRequest(
        range=common.TimeRange(start_ms=START_MS, end_ms=START_MS + HOUR_MS),
        queries=[
            query_pb2.SubQuery(
                metric=query_pb2.SubQuery.MetricSource(metric=metric, filters=filters), aggregator=aggregator
            )
        ],
        **options,
    )
    groups, is_complete = {}, False
    for response in stub.Query(request, timeout=TIMEOUT):
        frame = response.WhichOneof("frame")
        check("the statistics are the last frame", is_complete, False)
        if frame == "series":
            groups[response.series.series] = (dict(response.series.tags), [])
        elif frame == "points":
            points = response.points
            values = points.int_values or points.values
            for instant, value in zip(timestamps(points), values, strict=True):
                groups[points.series][1].append(((instant - START_MS) // 1000, value))
        elif frame == "statistics":
            is_complete = True
    check("the result is complete", is_complete, True)
    return sorted(groups.values(), key=lambda group: sorted(group[0].items()))


def queries(stub):
    for metric in ["python.columns", "python.deltas", "python.stream"]:
        expected = [({"host": "a"}, [(second, second) for second in range(1000)])]
        check(metric, query(stub, metric, NONE), expected)
    check("the point before the mistake", query(stub, "python.declared", NONE), [({"host": "a"}, [(7, 7)])])
    by_host = query_pb2.TagFilter(
        key="host", type=query_pb2.TagFilter.FILTER_TYPE_WILDCARD, pattern="*", group_by=True
    )
    expected = [
        ({"host": "a"}, [(second, second) for second in range(10)]),
        ({"host": "b"}, [(second, second + 0.5) for second in range(10)]),
    ]
    check("a group for each host", query(stub, "python.metric", SUM, [by_host]), expected)
    expected = [({}, [(second, 2 * second + 0.5) for second in range(10)])]
    check("the sum over hosts", query(stub, "python.metric", SUM), expected)
    check("with delta timestamps", query(stub, "python.metric", SUM, delta_timestamps=True), expected)


def last_points(stub):
    target = query_pb2.QueryLastRequest.Target
    request = query_pb2.QueryLastRequest(
        targets=[
            target(metric=query_pb2.SubQuery.MetricSource(metric="python.metric")),
            target(series=common.SeriesKey(name=series_name("no.such.metric", "a"))),
        ],
        look_back=Duration(seconds=6 * 3600),
        include_names=True,
    )
    points, errors = {}, []
    for response in stub.QueryLast(request, timeout=TIMEOUT):
        for point in response.points:
            value = getattr(point, point.WhichOneof("value"))
            points[point.name.tags[0].value] = (point.target, point.timestamp_ms, value)
        errors += [(error.target, error.error.reason) for error in response.errors]
    check("last points", points, {"a": (0, START_MS + 9000, 9), "b": (0, START_MS + 9000, 9.5)})
    check("the target that failed", errors, [(1, common.ERROR_REASON_NAME_NOT_FOUND)])


def errors(stub):
    details = rejected(
        "an unknown metric",
        lambda: query(stub, "no.such.metric", SUM),
        grpc.StatusCode.NOT_FOUND,
        "NAME_NOT_FOUND",
    )
    metadata = details[error_details_pb2.ErrorInfo].metadata
    check("its metadata", dict(metadata), {"kind": "UID_KIND_METRIC", "name": "no.such.metric"})
    details = rejected(
        "no aggregator",
        lambda: query(stub, "python.metric", None),
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_FIELD",
    )
    fields = [violation.field for violation in details[error_details_pb2.BadRequest].field_violations]
    check("the field is named", len(fields) == 1 and "aggregator" in fields[0], True)
    rejected(
        "no points",
        lambda: stub.Write(data.WriteRequest(options=MILLISECONDS), timeout=TIMEOUT),
        grpc.StatusCode.INVALID_ARGUMENT,
        "BATCH_TOO_LARGE",
    )
