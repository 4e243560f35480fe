package main

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	commonv1 "oxtsdb.dev/stubs/gen/oxtsdb/common/v1"
	datav1 "oxtsdb.dev/stubs/gen/oxtsdb/data/v1"
	uidv1 "oxtsdb.dev/stubs/gen/oxtsdb/uid/v1"
)

const metric = commonv1.UidKind_UID_KIND_METRIC

// All responses of a stream.
func all[T any](what string, stream grpc.ServerStreamingClient[T]) []*T {
	var responses []*T
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return responses
		}
		responses = append(responses, must[*T](what)(response, err))
	}
}

func watch(ctx context.Context, client uidv1.UidServiceClient) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request := &uidv1.WatchUidsRequest{SkipAssigned: true}
	stream := must[grpc.ServerStreamingClient[uidv1.WatchUidsResponse]]("watch")(client.WatchUids(ctx, request))
	first := must[*uidv1.WatchUidsResponse]("watch")(stream.Recv())
	check("the first response has a resume token", first.GetResumeToken() != "", true)
	must[*uidv1.GetOrCreateUidsResponse]("assign")(client.GetOrCreateUids(ctx, &uidv1.GetOrCreateUidsRequest{
		Names: []*uidv1.UidName{{Kind: metric, Name: "go.old"}},
	}))
	rename := &uidv1.RenameUidRequest{Kind: metric, Name: "go.old", NewName: "go.new"}
	must[*uidv1.RenameUidResponse]("rename")(client.RenameUid(ctx, rename))
	var events []*uidv1.WatchUidsResponse_Event
	for len(events) == 0 {
		events = must[*uidv1.WatchUidsResponse]("watch")(stream.Recv()).GetEvents()
	}
	renamed := events[0].GetRenamed()
	check("the old name of the event", renamed.GetOldName(), "go.old")
	check("the new name of the event", renamed.GetMapping().GetName(), "go.new")
	_, err := client.RenameUid(ctx, &uidv1.RenameUidRequest{Kind: metric, Name: "go.new", NewName: "go.metric"})
	rejected("a taken name", err, codes.AlreadyExists, "NAME_TAKEN")
}

func uidServices(ctx context.Context, connection *grpc.ClientConn) {
	meta := uidv1.NewUidMetaServiceClient(connection)
	request := &uidv1.UpdateUidMetaRequest{Meta: &uidv1.UidMeta{Kind: metric, Uid: []byte{0, 0, 1}, Notes: "note"}}
	updated := must[*uidv1.UpdateUidMetaResponse]("metadata")(meta.UpdateUidMeta(ctx, request)).GetMeta()
	check("metadata of a UID", updated.GetName()+" "+updated.GetNotes(), "go.metric note")
	request.Meta.Etag = "0"
	_, err := meta.UpdateUidMeta(ctx, request)
	rejected("an old etag", err, codes.Aborted, "ETAG_MISMATCH")
	events, err := uidv1.NewUidAdminServiceClient(connection).FsckUids(ctx, &uidv1.FsckUidsRequest{})
	found := all("check", must[grpc.ServerStreamingClient[uidv1.FsckUidsResponse]]("check")(events, err))
	check("the check of names responds", len(found) > 0, true)
	reclaim := uidv1.NewUidReclaimServiceClient(connection)
	listed, err := reclaim.ListReclaimedUids(ctx, &uidv1.ListReclaimedUidsRequest{})
	stream := must[grpc.ServerStreamingClient[uidv1.ListReclaimedUidsResponse]]("quarantine")(listed, err)
	for _, response := range all("quarantine", stream) {
		check("UIDs in quarantine", len(response.GetUids()), 0)
	}
}

// The TSUID of a series.
func seriesServices(ctx context.Context, connection *grpc.ClientConn) []byte {
	request := &datav1.LookupSeriesRequest{
		Selector: &datav1.SeriesSelector{Metric: "go.metric"}, PageSize: 1, IncludeTotal: true,
	}
	found := must[*datav1.LookupSeriesResponse]("look series up")(
		datav1.NewSeriesServiceClient(connection).LookupSeries(ctx, request))
	check("series of the metric", found.GetTotalSeries(), uint64(2))
	tsuid := found.GetSeries()[0].GetTsuid()
	update := &datav1.UpdateSeriesMetaRequest{
		Series: tsuidKey(tsuid), Meta: &datav1.SeriesMeta{Units: "ms"}, AllowMissing: true,
	}
	updated := must[*datav1.UpdateSeriesMetaResponse]("metadata")(
		datav1.NewSeriesMetaServiceClient(connection).UpdateSeriesMeta(ctx, update))
	check("metadata of a series", updated.GetMeta().GetUnits(), "ms")
	annotations := datav1.NewAnnotationServiceClient(connection)
	note := &datav1.Annotation{Tsuid: tsuid, StartMs: startMs, Notes: "deployed"}
	put := must[*datav1.PutAnnotationResponse]("annotate")(
		annotations.PutAnnotation(ctx, &datav1.PutAnnotationRequest{Annotation: note}))
	check("an annotation", put.GetAnnotation().GetNotes(), "deployed")
	_, err := annotations.GetAnnotation(ctx, &datav1.GetAnnotationRequest{Tsuid: tsuid, StartMs: startMs + 1000})
	rejected("no annotation", err, codes.NotFound, "ANNOTATION_NOT_FOUND")
	return tsuid
}

func tsuidKey(tsuid []byte) *commonv1.SeriesKey {
	return &commonv1.SeriesKey{Key: &commonv1.SeriesKey_Tsuid{Tsuid: tsuid}}
}

func trees(ctx context.Context, client datav1.TreeServiceClient, tsuid []byte) {
	rule := &datav1.TreeRule{Type: datav1.TreeRuleType_TREE_RULE_TYPE_METRIC, Separator: `\.`}
	created := must[*datav1.CreateTreeResponse]("create a tree")(client.CreateTree(ctx, &datav1.CreateTreeRequest{
		Tree: &datav1.Tree{Name: "t", Rules: []*datav1.TreeRule{rule}},
	}))
	tested := must[*datav1.TestTreeResponse]("test a tree")(client.TestTree(ctx, &datav1.TestTreeRequest{
		TreeId: created.GetTree().GetTreeId(), Series: []*commonv1.SeriesKey{tsuidKey(tsuid)},
	}))
	place := tested.GetResults()[0].GetPlace()
	check("its branches in a tree", place.GetBranches(), []string{"go"})
	check("its leaf", place.GetLeaf(), "metric")
	_, err := client.GetTree(ctx, &datav1.GetTreeRequest{TreeId: 9})
	rejected("an unknown tree", err, codes.NotFound, "TREE_NOT_FOUND")
}

func surfaces(ctx context.Context, data, uid *grpc.ClientConn) {
	watch(ctx, uidv1.NewUidServiceClient(uid))
	uidServices(ctx, uid)
	trees(ctx, datav1.NewTreeServiceClient(data), seriesServices(ctx, data))
}
