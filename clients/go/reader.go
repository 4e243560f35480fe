package writer

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"

	"google.golang.org/grpc"
	datav1 "oxtsdb.dev/writer/gen/oxtsdb/data/v1"
)

// QueryRetry is a service config for grpc.WithDefaultServiceConfig: gRPC repeats a query until its first frame has arrived.
const QueryRetry = `{"loadBalancingConfig": [{"round_robin": {}}], "methodConfig": [{
	"name": [{"service": "oxtsdb.data.v1.DataService", "method": "Query"}],
	"retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "2s", "backoffMultiplier": 2,
		"retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// Group is a group of series: one series of a result.
type Group struct {
	Query         int // the sub-query, from 0
	Metric        string
	Tags          map[string]string
	AggregateTags []string
}

// Points are columns of a group's points in order of time. Timestamps are milliseconds. Integers are the same values as stored,
// nil unless all of them are integers: a float64 is exact up to 2^53.
type Points struct {
	*Group
	Timestamps []int64
	Values     []float64
	Integers   []int64
}

// Select is a sub-query. Tags are OpenTSDB's: a value, `a|b`, or a pattern with `*`; they also group. The message has further
// fields: downsampling, rates, other filters.
func Select(aggregator, metric string, tags map[string]string) *datav1.SubQuery {
	source := &datav1.SubQuery_MetricSource{Metric: metric}
	for key, value := range tags {
		filter := &datav1.TagFilter{Key: key, GroupBy: true}
		if strings.Contains(value, "*") {
			filter.Type, filter.Pattern = datav1.TagFilter_FILTER_TYPE_WILDCARD, value
		} else {
			filter.Type, filter.Values = datav1.TagFilter_FILTER_TYPE_LITERAL_OR, strings.Split(value, "|")
		}
		source.Filters = append(source.Filters, filter)
	}
	// An unknown name is rejected by the server, as 0.
	function := datav1.AggregateFunction(datav1.AggregateFunction_value["AGGREGATE_FUNCTION_"+strings.ToUpper(aggregator)])
	return &datav1.SubQuery{
		Source:     &datav1.SubQuery_Metric{Metric: source},
		Aggregator: &datav1.Aggregator{Kind: &datav1.Aggregator_Function{Function: function}},
	}
}

// Read runs a query, and yields points as they arrive: some thousand of a group at a time, and those of several groups in turn. An
// error is the last item; the points before it are then a part of the result. Breaking off cancels the query.
func Read(ctx context.Context, connection grpc.ClientConnInterface, request *datav1.QueryRequest) iter.Seq2[Points, error] {
	return func(yield func(Points, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := datav1.NewDataServiceClient(connection).Query(ctx, request)
		groups, isComplete := map[uint32]*Group{}, false
		for err == nil {
			var frame *datav1.QueryResponse
			if frame, err = stream.Recv(); err != nil {
				break
			}
			isComplete = frame.GetStatistics() != nil
			if head := frame.GetSeries(); head != nil {
				groups[head.GetSeries()] = &Group{int(head.GetQuery()), head.GetMetric(), head.GetTags(), head.GetAggregateTags()}
			}
			if received := frame.GetPoints(); received != nil {
				points := Points{Group: groups[received.GetSeries()]}
				if err = points.add(received); err == nil && !yield(points, nil) {
					return
				}
			}
		}
		if err == io.EOF && isComplete {
			return
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		yield(Points{}, err)
	}
}

func (p *Points) add(received *datav1.QueryResponse_Points) error {
	p.Timestamps, p.Values, p.Integers = received.GetTimestampsMs(), received.GetValues(), received.GetIntValues()
	if encoded := received.GetDeltaTimestamps(); encoded != nil {
		p.Timestamps = append(make([]int64, 0, len(encoded.GetDeltas())+1), encoded.GetFirst())
		for index, delta := range encoded.GetDeltas() {
			p.Timestamps = append(p.Timestamps, p.Timestamps[index]+delta)
		}
		if last := p.Timestamps[len(p.Timestamps)-1]; last != encoded.GetLast() {
			return fmt.Errorf("timestamps add up to %d in place of %d", last, encoded.GetLast())
		}
	}
	if len(p.Integers) > 0 {
		p.Values = make([]float64, len(p.Integers))
		for index, integer := range p.Integers {
			p.Values[index] = float64(integer)
		}
	}
	if p.Group == nil || len(p.Values) != len(p.Timestamps) {
		return fmt.Errorf("%d values for %d timestamps of series %d, declared %t",
			len(p.Values), len(p.Timestamps), received.GetSeries(), p.Group != nil)
	}
	return nil
}

// ReadAll returns a whole result: each group once, with all its points; one without points is left out.
func ReadAll(ctx context.Context, connection grpc.ClientConnInterface, request *datav1.QueryRequest) ([]*Points, error) {
	var all []*Points
	wholes := map[*Group]*Points{}
	for points, err := range Read(ctx, connection, request) {
		if err != nil {
			return nil, err
		}
		whole := wholes[points.Group]
		if whole == nil {
			wholes[points.Group] = &points
			all = append(all, &points)
			continue
		}
		if whole.Integers != nil && points.Integers != nil {
			whole.Integers = append(whole.Integers, points.Integers...)
		} else {
			whole.Integers = nil
		}
		whole.Timestamps = append(whole.Timestamps, points.Timestamps...)
		whole.Values = append(whole.Values, points.Values...)
	}
	return all, nil
}
