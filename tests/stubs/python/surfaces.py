"""A call of each service for names, metadata, annotations, look-ups and trees."""

import grpc
from support import START_MS, TIMEOUT, check, rejected
from oxtsdb.common.v1 import common_pb2 as common
from oxtsdb.data.v1 import annotation_pb2, annotation_service_pb2, annotation_service_pb2_grpc
from oxtsdb.data.v1 import series_meta_service_pb2 as series_meta
from oxtsdb.data.v1 import series_meta_service_pb2_grpc
from oxtsdb.data.v1 import series_service_pb2 as series
from oxtsdb.data.v1 import series_service_pb2_grpc
from oxtsdb.data.v1 import tree_service_pb2 as tree
from oxtsdb.data.v1 import tree_service_pb2_grpc
from oxtsdb.uid.v1 import uid_admin_service_pb2 as uid_admin
from oxtsdb.uid.v1 import uid_admin_service_pb2_grpc
from oxtsdb.uid.v1 import uid_meta_pb2
from oxtsdb.uid.v1 import uid_meta_service_pb2 as uid_meta
from oxtsdb.uid.v1 import uid_meta_service_pb2_grpc
from oxtsdb.uid.v1 import uid_reclaim_service_pb2 as uid_reclaim
from oxtsdb.uid.v1 import uid_reclaim_service_pb2_grpc
from oxtsdb.uid.v1 import uid_service_pb2 as uid
from oxtsdb.uid.v1 import uid_service_pb2_grpc

METRIC = common.UID_KIND_METRIC


def watch(channel):
    stub = uid_service_pb2_grpc.UidServiceStub(channel)
    stream = stub.WatchUids(uid.WatchUidsRequest(skip_assigned=True), timeout=TIMEOUT)
    check("the first response has a resume token", next(stream).resume_token != "", True)
    name = uid.UidName(kind=METRIC, name="python.old")
    stub.GetOrCreateUids(uid.GetOrCreateUidsRequest(names=[name]), timeout=TIMEOUT)
    stub.RenameUid(uid.RenameUidRequest(kind=METRIC, name="python.old", new_name="python.new"), timeout=TIMEOUT)
    event = next(event for response in stream for event in response.events)
    check("the event", (event.renamed.old_name, event.renamed.mapping.name), ("python.old", "python.new"))
    stream.cancel()
    taken = uid.RenameUidRequest(kind=METRIC, name="python.new", new_name="python.metric")
    rejected(
        "a taken name",
        lambda: stub.RenameUid(taken, timeout=TIMEOUT),
        grpc.StatusCode.ALREADY_EXISTS,
        "NAME_TAKEN",
    )


def uid_services(channel):
    meta = uid_meta_service_pb2_grpc.UidMetaServiceStub(channel)
    document = uid_meta_pb2.UidMeta(kind=METRIC, uid=b"\0\0\1", notes="note")
    updated = meta.UpdateUidMeta(uid_meta.UpdateUidMetaRequest(meta=document), timeout=TIMEOUT).meta
    check("metadata of a UID", (updated.name, updated.notes), ("python.metric", "note"))
    document.etag = "0"
    rejected(
        "an old etag",
        lambda: meta.UpdateUidMeta(uid_meta.UpdateUidMetaRequest(meta=document), timeout=TIMEOUT),
        grpc.StatusCode.ABORTED,
        "ETAG_MISMATCH",
    )
    admin = uid_admin_service_pb2_grpc.UidAdminServiceStub(channel)
    events = list(admin.FsckUids(uid_admin.FsckUidsRequest(), timeout=TIMEOUT))
    check("the check of names responds", len(events) > 0, True)
    reclaim = uid_reclaim_service_pb2_grpc.UidReclaimServiceStub(channel)
    listed = reclaim.ListReclaimedUids(uid_reclaim.ListReclaimedUidsRequest(), timeout=TIMEOUT)
    check("UIDs in quarantine", [len(response.uids) for response in listed if response.uids], [])


def series_services(channel):
    stub = series_service_pb2_grpc.SeriesServiceStub(channel)
    request = series.LookupSeriesRequest(
        selector=series.SeriesSelector(metric="python.metric"), page_size=1, include_total=True
    )
    found = stub.LookupSeries(request, timeout=TIMEOUT)
    check("series of the metric", found.total_series, 2)
    tsuid = found.series[0].tsuid
    meta = series_meta_service_pb2_grpc.SeriesMetaServiceStub(channel)
    update = series_meta.UpdateSeriesMetaRequest(
        series=common.SeriesKey(tsuid=tsuid), meta=series_meta.SeriesMeta(units="ms"), allow_missing=True
    )
    check("metadata of a series", meta.UpdateSeriesMeta(update, timeout=TIMEOUT).meta.units, "ms")
    annotations = annotation_service_pb2_grpc.AnnotationServiceStub(channel)
    note = annotation_pb2.Annotation(tsuid=tsuid, start_ms=START_MS, notes="deployed")
    put = annotation_service_pb2.PutAnnotationRequest(annotation=note)
    check("an annotation", annotations.PutAnnotation(put, timeout=TIMEOUT).annotation.notes, "deployed")
    get = annotation_service_pb2.GetAnnotationRequest(tsuid=tsuid, start_ms=START_MS + 1000)
    rejected(
        "no annotation",
        lambda: annotations.GetAnnotation(get, timeout=TIMEOUT),
        grpc.StatusCode.NOT_FOUND,
        "ANNOTATION_NOT_FOUND",
    )
    return tsuid


def trees(channel, tsuid):
    stub = tree_service_pb2_grpc.TreeServiceStub(channel)
    rule = tree.TreeRule(type=tree.TREE_RULE_TYPE_METRIC, separator=r"\.")
    created = stub.CreateTree(tree.CreateTreeRequest(tree=tree.Tree(name="t", rules=[rule])), timeout=TIMEOUT).tree
    request = tree.TestTreeRequest(tree_id=created.tree_id, series=[common.SeriesKey(tsuid=tsuid)])
    place = stub.TestTree(request, timeout=TIMEOUT).results[0].place
    check("its place in a tree", (list(place.branches), place.leaf), (["python"], "metric"))
    rejected(
        "an unknown tree",
        lambda: stub.GetTree(tree.GetTreeRequest(tree_id=9), timeout=TIMEOUT),
        grpc.StatusCode.NOT_FOUND,
        "TREE_NOT_FOUND",
    )


def surfaces(channel, uid_channel):
    watch(uid_channel)
    uid_services(uid_channel)
    trees(channel, series_services(channel))
