// Assigns, looks up, writes in each form and queries, with the stubs that protoc-gen-go makes.
//
//	go run . DATA_ADDRESS UID_ADDRESS
//
// Ends with 1 at the first answer that is not as the contract says.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"sort"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	commonv1 "oxtsdb.dev/stubs/gen/oxtsdb/common/v1"
	datav1 "oxtsdb.dev/stubs/gen/oxtsdb/data/v1"
	uidv1 "oxtsdb.dev/stubs/gen/oxtsdb/uid/v1"
)

const startMs = 1_500_000_000_000

var checks int

func check(what string, actual, expected any) {
	if !reflect.DeepEqual(actual, expected) {
		fail("%s: expected %#v, got %#v", what, expected, actual)
	}
	checks++
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}

func must[T any](what string) func(T, error) T {
	return func(answer T, err error) T {
		if err != nil {
			fail("%s: %v", what, err)
		}
		return answer
	}
}

func connect(address string) *grpc.ClientConn {
	return must[*grpc.ClientConn](address)(
		grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials())))
}

func health(ctx context.Context, connection *grpc.ClientConn, service string) {
	answer := must[*healthv1.HealthCheckResponse]("health")(
		healthv1.NewHealthClient(connection).Check(ctx, &healthv1.HealthCheckRequest{Service: service}))
	check("health of "+service, answer.GetStatus(), healthv1.HealthCheckResponse_SERVING)
}

func uids(ctx context.Context, client uidv1.UidServiceClient) {
	names := []*uidv1.UidName{
		{Kind: commonv1.UidKind_UID_KIND_METRIC, Name: "go.metric"},
		{Kind: commonv1.UidKind_UID_KIND_TAG_KEY, Name: "host"},
		{Kind: commonv1.UidKind_UID_KIND_TAG_VALUE, Name: "pümpernickel"},
	}
	request := &uidv1.GetOrCreateUidsRequest{Names: names}
	assigned := must[*uidv1.GetOrCreateUidsResponse]("assign")(client.GetOrCreateUids(ctx, request))
	again := must[*uidv1.GetOrCreateUidsResponse]("assign again")(client.GetOrCreateUids(ctx, request))
	var values []*uidv1.UidValue
	for number, result := range assigned.GetResults() {
		check("a new name is created", result.GetCreated(), true)
		check("the first UID", result.GetUid(), []byte{0, 0, 1})
		check("a known name is not created", again.GetResults()[number].GetCreated(), false)
		values = append(values, &uidv1.UidValue{Kind: names[number].GetKind(), Uid: result.GetUid()})
	}
	found := must[*uidv1.LookupNamesResponse]("look names up")(
		client.LookupNames(ctx, &uidv1.LookupNamesRequest{Uids: values}))
	for number, result := range found.GetResults() {
		check("the name of a UID", result.GetName(), names[number].GetName())
	}
	unknown := &uidv1.UidName{Kind: commonv1.UidKind_UID_KIND_METRIC, Name: "unknown"}
	looked := must[*uidv1.LookupUidsResponse]("look UIDs up")(
		client.LookupUids(ctx, &uidv1.LookupUidsRequest{Names: []*uidv1.UidName{names[0], unknown}}))
	check("a known name", looked.GetResults()[0].GetUid(), []byte{0, 0, 1})
	check("an unknown name", looked.GetResults()[1].GetError().GetReason(),
		commonv1.ErrorReason_ERROR_REASON_NAME_NOT_FOUND)
	check("its code", codes.Code(looked.GetResults()[1].GetError().GetCode()), codes.NotFound)
}

func options() *datav1.WriteOptions {
	return &datav1.WriteOptions{TimeUnit: datav1.TimeUnit_TIME_UNIT_MILLISECONDS}
}

// A series without points.
func series(metric, host string) *datav1.TimeSeries {
	return &datav1.TimeSeries{Series: &datav1.TimeSeries_Name{Name: &commonv1.SeriesName{
		Metric: metric,
		Tags:   []*commonv1.Tag{{Key: "host", Value: host}},
	}}}
}

func writeSimple(ctx context.Context, client datav1.DataServiceClient) {
	ints, doubles, bad := series("go.metric", "a"), series("go.metric", "b"), series("go metric", "a")
	for second := range int64(10) {
		instant := startMs + second*1000
		ints.Timestamps = append(ints.Timestamps, instant)
		ints.IntValues = append(ints.IntValues, second)
		doubles.Timestamps = append(doubles.Timestamps, instant)
		doubles.Values = append(doubles.Values, float64(second)+0.5)
	}
	bad.Timestamps, bad.IntValues = []int64{startMs}, []int64{1}
	request := &datav1.WriteRequest{Series: []*datav1.TimeSeries{ints, doubles, bad}, Options: options()}
	response := must[*datav1.WriteResponse]("write")(client.Write(ctx, request))
	check("points written", response.GetWritten(), uint64(20))
	check("points failed", response.GetFailed(), uint64(1))
	failures := response.GetFailures()
	check("the failed run", failures.GetPermanent().GetFirst(), []uint64{20})
	check("its length", failures.GetPermanent().GetCount(), []uint64{1})
	check("why", failures.GetErrors()[0].GetError().GetReason(), commonv1.ErrorReason_ERROR_REASON_INVALID_NAME)
}

// Points of one series; its declaration is sent with the first of a table.
func columns(metric string, first, count int64) *datav1.Columns {
	block := &datav1.Columns_Block{Series: []uint32{0}}
	timestamps := &datav1.DeltaTimestamps{First: startMs + first*1000}
	for number := range count {
		timestamps.Last = startMs + (first+number)*1000
		if number > 0 {
			timestamps.Deltas = append(timestamps.Deltas, 1000)
		}
		block.IntValues = append(block.IntValues, first+number)
	}
	block.DeltaTimestamps = timestamps
	message := &datav1.Columns{Blocks: []*datav1.Columns_Block{block}}
	if first == 0 {
		message.NewSymbols = []string{metric, "host", "a"}
		message.NewSeries = []*datav1.Columns_SeriesDeclaration{{MetricSymbol: 0, TagSymbols: []uint32{1, 2}}}
	}
	return message
}

func writeColumns(ctx context.Context, client datav1.DataServiceClient) {
	answer := must[*datav1.WriteColumnsResponse]("write columns")(
		client.WriteColumns(ctx, &datav1.WriteColumnsRequest{Columns: columns("go.columns", 0, 1000), Options: options()}))
	check("points written in columns", answer.GetWritten(), uint64(1000))
	check("points failed in columns", answer.GetFailed(), uint64(0))
}

func writeStream(ctx context.Context, client datav1.DataServiceClient) {
	stream := must[grpc.BidiStreamingClient[datav1.WriteStreamRequest, datav1.WriteStreamResponse]]("stream")(
		client.WriteStream(ctx))
	send := func(request *datav1.WriteStreamRequest) {
		if err := stream.Send(request); err != nil {
			fail("send: %v", err)
		}
	}
	send(&datav1.WriteStreamRequest{Message: &datav1.WriteStreamRequest_Open_{
		Open: &datav1.WriteStreamRequest_Open{ClientName: "check in Go", Options: options()},
	}})
	opened := must[*datav1.WriteStreamResponse]("opened")(stream.Recv()).GetOpened()
	check("its window", opened.GetWindowFrames() > 0 && opened.GetWindowPoints() >= 100, true)
	for frame := range int64(10) {
		send(&datav1.WriteStreamRequest{Message: &datav1.WriteStreamRequest_Frame_{
			Frame: &datav1.WriteStreamRequest_Frame{
				Sequence: uint64(frame + 1), Columns: columns("go.stream", frame*100, 100),
			},
		}})
	}
	var sequence, written uint64
	for sequence < 10 {
		ack := must[*datav1.WriteStreamResponse]("ack")(stream.Recv()).GetAck()
		check("acks are in order", ack.GetSequence() > sequence, true)
		sequence, written = ack.GetSequence(), written+ack.GetWritten()
	}
	check("points written on the stream", written, uint64(1000))
	if err := stream.CloseSend(); err != nil {
		fail("close: %v", err)
	}
	_, err := stream.Recv()
	check("nothing after the last ack", errors.Is(err, io.EOF), true)
}

type group struct {
	tags   map[string]string
	points map[int64]float64
}

func query(ctx context.Context, client datav1.DataServiceClient, question *datav1.SubQuery) ([]group, error) {
	stream, err := client.Query(ctx, &datav1.QueryRequest{
		Range: &commonv1.TimeRange{
			Start: &commonv1.TimeRange_StartMs{StartMs: startMs},
			End:   &commonv1.TimeRange_EndMs{EndMs: startMs + 3_600_000},
		},
		Queries: []*datav1.SubQuery{question},
	})
	if err != nil {
		return nil, err
	}
	var groups []group
	numbers := map[uint32]int{}
	isComplete := false
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		switch frame := response.GetFrame().(type) {
		case *datav1.QueryResponse_Series_:
			numbers[frame.Series.GetSeries()] = len(groups)
			groups = append(groups, group{frame.Series.GetTags(), map[int64]float64{}})
		case *datav1.QueryResponse_Points_:
			points := groups[numbers[frame.Points.GetSeries()]].points
			for number, instant := range frame.Points.GetTimestampsMs() {
				if ints := frame.Points.GetIntValues(); len(ints) > 0 {
					points[(instant-startMs)/1000] = float64(ints[number])
				} else {
					points[(instant-startMs)/1000] = frame.Points.GetValues()[number]
				}
			}
		case *datav1.QueryResponse_Statistics_:
			isComplete = true
		}
	}
	check("the answer is complete", isComplete, true)
	sort.Slice(groups, func(a, b int) bool { return groups[a].tags["host"] < groups[b].tags["host"] })
	return groups, nil
}

func ask(metric string, function datav1.AggregateFunction, filters ...*datav1.TagFilter) *datav1.SubQuery {
	return &datav1.SubQuery{
		Source: &datav1.SubQuery_Metric{
			Metric: &datav1.SubQuery_MetricSource{Metric: metric, Filters: filters},
		},
		Aggregator: &datav1.Aggregator{Kind: &datav1.Aggregator_Function{Function: function}},
	}
}

func points(count int64, value func(int64) float64) map[int64]float64 {
	all := map[int64]float64{}
	for second := range count {
		all[second] = value(second)
	}
	return all
}

func queries(ctx context.Context, client datav1.DataServiceClient) {
	same := func(second int64) float64 { return float64(second) }
	half := func(second int64) float64 { return float64(second) + 0.5 }
	for _, metric := range []string{"go.columns", "go.stream"} {
		groups := must[[]group](metric)(query(ctx, client, ask(metric, datav1.AggregateFunction_AGGREGATE_FUNCTION_NONE)))
		check(metric, groups, []group{{map[string]string{"host": "a"}, points(1000, same)}})
	}
	sum := datav1.AggregateFunction_AGGREGATE_FUNCTION_SUM
	byHost := &datav1.TagFilter{
		Key: "host", Type: datav1.TagFilter_FILTER_TYPE_WILDCARD, Pattern: "*", GroupBy: true,
	}
	groups := must[[]group]("by host")(query(ctx, client, ask("go.metric", sum, byHost)))
	check("a group for each host", groups, []group{
		{map[string]string{"host": "a"}, points(10, same)},
		{map[string]string{"host": "b"}, points(10, half)},
	})
	groups = must[[]group]("sum")(query(ctx, client, ask("go.metric", sum)))
	check("one group", len(groups), 1)
	check("the sum over hosts", groups[0].points, points(10, func(second int64) float64 { return 2*float64(second) + 0.5 }))
}

func refused(what string, err error, code codes.Code, reason string) []any {
	failed := status.Convert(err)
	check(what+": code", failed.Code(), code)
	for _, detail := range failed.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			check(what+": domain", info.GetDomain(), "oxtsdb.dev")
			check(what+": reason", info.GetReason(), reason)
			return failed.Details()
		}
	}
	fail("%s: no ErrorInfo in %v", what, failed.Details())
	return nil
}

func richErrors(ctx context.Context, client datav1.DataServiceClient) {
	_, err := query(ctx, client, ask("no.such.metric", datav1.AggregateFunction_AGGREGATE_FUNCTION_SUM))
	refused("an unknown metric", err, codes.NotFound, "NAME_NOT_FOUND")
	_, err = query(ctx, client, ask("go.metric", datav1.AggregateFunction_AGGREGATE_FUNCTION_UNSPECIFIED))
	field := ""
	for _, detail := range refused("no aggregator", err, codes.InvalidArgument, "INVALID_FIELD") {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			field = bad.GetFieldViolations()[0].GetField()
		}
	}
	check("the field is named", strings.Contains(field, "aggregator"), true)
	_, err = client.Write(ctx, &datav1.WriteRequest{Options: options()})
	refused("no points", err, codes.InvalidArgument, "BATCH_TOO_LARGE")
}

func main() {
	if len(os.Args) != 3 {
		fail("usage: go run . DATA_ADDRESS UID_ADDRESS")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	data, uid := connect(os.Args[1]), connect(os.Args[2])
	defer data.Close()
	defer uid.Close()
	health(ctx, data, "oxtsdb.data.v1.DataService")
	health(ctx, uid, "oxtsdb.uid.v1.UidService")
	uids(ctx, uidv1.NewUidServiceClient(uid))
	client := datav1.NewDataServiceClient(data)
	writeSimple(ctx, client)
	writeColumns(ctx, client)
	writeStream(ctx, client)
	queries(ctx, client)
	richErrors(ctx, client)
	fmt.Printf("stubs in Go: %d checks passed\n", checks)
}
