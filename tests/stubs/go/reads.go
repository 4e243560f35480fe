package main

import (
	"context"
	"errors"
	"io"
	"sort"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	commonv1 "oxtsdb.dev/stubs/gen/oxtsdb/common/v1"
	datav1 "oxtsdb.dev/stubs/gen/oxtsdb/data/v1"
)

type group struct {
	tags   map[string]string
	points map[int64]float64
}

// A query of the hour of all points for one metric.
func queryOf(metric string, function datav1.AggregateFunction, filters ...*datav1.TagFilter) *datav1.QueryRequest {
	subQuery := &datav1.SubQuery{Source: &datav1.SubQuery_Metric{
		Metric: &datav1.SubQuery_MetricSource{Metric: metric, Filters: filters},
	}}
	if function != datav1.AggregateFunction_AGGREGATE_FUNCTION_UNSPECIFIED {
		subQuery.Aggregator = &datav1.Aggregator{Kind: &datav1.Aggregator_Function{Function: function}}
	}
	return &datav1.QueryRequest{
		Range: &commonv1.TimeRange{
			Start: &commonv1.TimeRange_StartMs{StartMs: startMs},
			End:   &commonv1.TimeRange_EndMs{EndMs: startMs + hourMs},
		},
		Queries: []*datav1.SubQuery{subQuery},
	}
}

func resultTimestamps(points *datav1.QueryResponse_Points) []int64 {
	encoding := points.GetDeltaTimestamps()
	if encoding == nil {
		return points.GetTimestampsMs()
	}
	instants := []int64{encoding.GetFirst()}
	for _, delta := range encoding.GetDeltas() {
		instants = append(instants, instants[len(instants)-1]+delta)
	}
	check("the encoding adds up", instants[len(instants)-1], encoding.GetLast())
	return instants
}

func query(ctx context.Context, client datav1.DataServiceClient, request *datav1.QueryRequest) ([]group, error) {
	stream, err := client.Query(ctx, request)
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
		check("the statistics are the last frame", isComplete, false)
		switch frame := response.GetFrame().(type) {
		case *datav1.QueryResponse_Series_:
			numbers[frame.Series.GetSeries()] = len(groups)
			groups = append(groups, group{frame.Series.GetTags(), map[int64]float64{}})
		case *datav1.QueryResponse_Points_:
			points := groups[numbers[frame.Points.GetSeries()]].points
			ints := frame.Points.GetIntValues()
			for number, instant := range resultTimestamps(frame.Points) {
				if len(ints) > 0 {
					points[(instant-startMs)/1000] = float64(ints[number])
				} else {
					points[(instant-startMs)/1000] = frame.Points.GetValues()[number]
				}
			}
		case *datav1.QueryResponse_Statistics_:
			isComplete = true
		}
	}
	check("the result is complete", isComplete, true)
	sort.Slice(groups, func(a, b int) bool { return groups[a].tags["host"] < groups[b].tags["host"] })
	return groups, nil
}

func points(first, count int64, value func(int64) float64) map[int64]float64 {
	all := map[int64]float64{}
	for second := first; second < first+count; second++ {
		all[second] = value(second)
	}
	return all
}

func queries(ctx context.Context, client datav1.DataServiceClient) {
	none, sum := datav1.AggregateFunction_AGGREGATE_FUNCTION_NONE, datav1.AggregateFunction_AGGREGATE_FUNCTION_SUM
	result := func(request *datav1.QueryRequest) []group { return must[[]group]("query")(query(ctx, client, request)) }
	onA := map[string]string{"host": "a"}
	same := func(second int64) float64 { return float64(second) }
	half := func(second int64) float64 { return float64(second) + 0.5 }
	for _, metric := range []string{"go.columns", "go.deltas", "go.stream"} {
		check(metric, result(queryOf(metric, none)), []group{{onA, points(0, 1000, same)}})
	}
	check("the point before the mistake", result(queryOf("go.declared", none)), []group{{onA, points(7, 1, same)}})
	byHost := &datav1.TagFilter{
		Key: "host", Type: datav1.TagFilter_FILTER_TYPE_WILDCARD, Pattern: "*", GroupBy: true,
	}
	check("a group for each host", result(queryOf("go.metric", sum, byHost)), []group{
		{onA, points(0, 10, same)},
		{map[string]string{"host": "b"}, points(0, 10, half)},
	})
	both := points(0, 10, func(second int64) float64 { return 2*float64(second) + 0.5 })
	request := queryOf("go.metric", sum)
	check("the sum over hosts", result(request)[0].points, both)
	request.DeltaTimestamps = true
	check("with delta timestamps", result(request)[0].points, both)
}

func lastPoints(ctx context.Context, client datav1.DataServiceClient) {
	request := &datav1.QueryLastRequest{
		Targets: []*datav1.QueryLastRequest_Target{
			{Target: &datav1.QueryLastRequest_Target_Metric{Metric: &datav1.SubQuery_MetricSource{Metric: "go.metric"}}},
			{Target: &datav1.QueryLastRequest_Target_Series{Series: &commonv1.SeriesKey{
				Key: &commonv1.SeriesKey_Name{Name: seriesName("no.such.metric", "a")},
			}}},
		},
		LookBack:     durationpb.New(6 * time.Hour),
		IncludeNames: true,
	}
	stream, err := client.QueryLast(ctx, request)
	if err != nil {
		fail("last points: %v", err)
	}
	last, failed := map[string]float64{}, map[uint32]commonv1.ErrorReason{}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fail("last points: %v", err)
		}
		for _, point := range response.GetPoints() {
			check("timestamp of a last point", point.GetTimestampMs(), startMs+9000)
			// One of both is set, the other is 0.
			last[point.GetName().GetTags()[0].GetValue()] = float64(point.GetIntValue()) + point.GetDoubleValue()
		}
		for _, target := range response.GetErrors() {
			failed[target.GetTarget()] = target.GetError().GetReason()
		}
	}
	check("last points", last, map[string]float64{"a": 9, "b": 9.5})
	check("the target that failed", failed, map[uint32]commonv1.ErrorReason{
		1: commonv1.ErrorReason_ERROR_REASON_NAME_NOT_FOUND,
	})
}

func richErrors(ctx context.Context, client datav1.DataServiceClient) {
	_, err := query(ctx, client, queryOf("no.such.metric", datav1.AggregateFunction_AGGREGATE_FUNCTION_SUM))
	found := rejected("an unknown metric", err, codes.NotFound, "NAME_NOT_FOUND")
	check("its metadata", found.info.GetMetadata(), map[string]string{
		"kind": "UID_KIND_METRIC", "name": "no.such.metric",
	})
	_, err = query(ctx, client, queryOf("go.metric", datav1.AggregateFunction_AGGREGATE_FUNCTION_UNSPECIFIED))
	found = rejected("no aggregator", err, codes.InvalidArgument, "INVALID_FIELD")
	field := found.badRequest.GetFieldViolations()[0].GetField()
	check("the field is named", strings.Contains(field, "aggregator"), true)
	_, err = client.Write(ctx, &datav1.WriteRequest{Options: milliseconds})
	rejected("no points", err, codes.InvalidArgument, "BATCH_TOO_LARGE")
}
