"""Reads results of Query: points as they arrive, whole series, and a pandas DataFrame. See README.md."""

import datetime
import itertools
import json
from array import array
from dataclasses import dataclass, field
import grpc
from google.protobuf.duration_pb2 import Duration
from oxtsdb.data.v1.data_service_pb2_grpc import DataServiceStub
from oxtsdb.data.v1.query_pb2 import AggregateFunction, Aggregator, QueryRequest, SubQuery, TagFilter

# A query can be repeated, which gRPC does until the first frame has arrived.
RETRIES = {"name": [{"service": "oxtsdb.data.v1.DataService", "method": "Query"}],
           "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "2s", "backoffMultiplier": 2,
                           "retryableStatusCodes": ["UNAVAILABLE"]}}
OPTIONS = [("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}], "methodConfig": [RETRIES]})),
           ("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 10_000)]
COLUMNS = ("query", "metric", "timestamp", "value")

class ResultError(Exception):
    """The result is incomplete, or does not follow the contract."""

@dataclass(slots=True)
class Series:
    """A group of series: one series of the result. Timestamps are milliseconds; integers are exact unless the series
    also has floating-point values. Both arrays are sequences, which NumPy takes without a copy: `np.asarray`."""
    query: int  # the sub-query, from 0
    metric: str
    tags: dict[str, str]
    aggregate_tags: list[str]
    timestamps: array = field(default_factory=lambda: array("q"))
    values: array = field(default_factory=lambda: array("q"))

    def extend(self, timestamps, values):
        if not self.values:
            self.values = array(values.typecode)
        if self.values.typecode != values.typecode:
            self.values = self.values if self.values.typecode == "d" else array("d", self.values)
            values = array("d", values)
        self.values.extend(values)
        self.timestamps.extend(timestamps)

def select(metric, tags=None, aggregator="sum", *, every=None, downsample="avg", rate=False):
    """A sub-query. `tags` are OpenTSDB's: a value, `a|b`, or a pattern with `*`; they also group. `every` is a timedelta.
    The message has further fields: filters, fill policies, counters."""
    query = SubQuery(aggregator=function(aggregator), metric={"metric": metric})
    for key, value in (tags or {}).items():
        form = {"type": TagFilter.FILTER_TYPE_WILDCARD, "pattern": value} if "*" in value else {
            "type": TagFilter.FILTER_TYPE_LITERAL_OR, "values": value.split("|")}
        query.metric.filters.add(key=key, group_by=True, **form)
    if every is not None:
        query.downsample.fixed.FromTimedelta(every)
        query.downsample.aggregator.CopyFrom(function(downsample))
    if rate:
        query.rate.SetInParent()
    return query

def function(name):
    return Aggregator(function=AggregateFunction.Value(f"AGGREGATE_FUNCTION_{name.upper()}"))

def instant(name, when):
    """A field of TimeRange: milliseconds, a datetime, or a timedelta before the server's clock."""
    if isinstance(when, datetime.timedelta):
        ago = Duration()
        ago.FromTimedelta(when)
        return {f"{name}_ago": ago}
    return {f"{name}_ms": round(when.timestamp() * 1000) if isinstance(when, datetime.datetime) else when}

class Reader:
    """Reads from `target`: `HOST:PORT`, or several servers by DNS or as `ipv4:10.0.0.1:4243,10.0.0.2:4243`."""
    def __init__(self, target, *, connect=lambda target: grpc.insecure_channel(target, OPTIONS), timeout=60.0):
        self._channel, self._timeout = connect(target), timeout

    def close(self):
        self._channel.close()

    def blocks(self, start, end=None, *queries, **options):
        """Yields (series, timestamps, values) as they arrive: in order of time for each series, and those of several series in
        turn. The series has no points itself. Breaking off cancels the query. `options` are other fields of QueryRequest."""
        ends = {} if end is None else instant("end", end)
        request = QueryRequest(range={**instant("start", start), **ends}, queries=queries, delta_timestamps=True, **options)
        call = DataServiceStub(self._channel).Query(request, timeout=self._timeout)
        series, is_complete = {}, False
        try:
            for frame in call:
                is_complete = frame.HasField("statistics")
                if frame.HasField("series"):
                    head = frame.series
                    series[head.series] = Series(head.query, head.metric, dict(head.tags), list(head.aggregate_tags))
                elif frame.HasField("points"):
                    if frame.points.series not in series:
                        raise ResultError(f"points of the undeclared series {frame.points.series}")
                    yield series[frame.points.series], *columns(frame.points)
        finally:
            call.cancel()
        if not is_complete:
            raise ResultError("the result ended before its last frame")

    def series(self, start, end=None, *queries, **options):
        """The whole result: its series with all their points. A series without points is left out."""
        all_series = {}
        for series, timestamps, values in self.blocks(start, end, *queries, **options):
            all_series.setdefault(id(series), series).extend(timestamps, values)
        return list(all_series.values())

    def dataframe(self, start, end=None, *queries, **options):
        """The whole result as a pandas.DataFrame: a row for each point, with a categorical column for each tag key."""
        import numpy as np
        import pandas as pd

        series = self.series(start, end, *queries, **options)
        counts = [len(one.timestamps) for one in series]

        def texts(values):
            codes, categories = pd.factorize(np.array([*values, None], dtype=object)[:-1])
            return pd.Categorical.from_codes(np.repeat(codes, counts), categories)

        keys = sorted({key for one in series for key in one.tags})
        names = {key: f"tag_{key}" if key in COLUMNS else key for key in keys}
        joined = Series(0, "", {}, [])
        for one in series:
            joined.extend(one.timestamps, one.values)
        return pd.DataFrame({
            "query": np.repeat(np.array([one.query for one in series], dtype=np.int32), counts),
            "metric": texts([one.metric for one in series]),
            **{names[key]: texts([one.tags.get(key) for one in series]) for key in keys},
            "timestamp": pd.to_datetime(np.asarray(joined.timestamps), unit="ms", utc=True),
            "value": np.asarray(joined.values),
        })

def columns(points):
    """Timestamps and values of a frame."""
    encoded = points.delta_timestamps
    timestamps = array("q", itertools.accumulate(encoded.deltas, initial=encoded.first))
    values = array("q", points.int_values) if points.int_values else array("d", points.values)
    if timestamps[-1] != encoded.last or len(timestamps) != len(values):
        raise ResultError(f"{len(values)} values for {len(timestamps)} timestamps up to {timestamps[-1]}")
    return timestamps, values
