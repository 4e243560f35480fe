package main

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	commonv1 "oxtsdb.dev/stubs/gen/oxtsdb/common/v1"
	datav1 "oxtsdb.dev/stubs/gen/oxtsdb/data/v1"
)

var milliseconds = &datav1.WriteOptions{TimeUnit: datav1.TimeUnit_TIME_UNIT_MILLISECONDS}

func timestamps(first, count int64) []int64 {
	var all []int64
	for second := first; second < first+count; second++ {
		all = append(all, startMs+second*1000)
	}
	return all
}

func timeSeries(metric, host string, count int64) *datav1.TimeSeries {
	return &datav1.TimeSeries{
		Series:     &datav1.TimeSeries_Name{Name: seriesName(metric, host)},
		Timestamps: timestamps(0, count),
	}
}

func write(ctx context.Context, client datav1.DataServiceClient) {
	a, b, invalid := timeSeries("go.metric", "a", 10), timeSeries("go.metric", "b", 10), timeSeries("go metric", "a", 1)
	for second := range int64(10) {
		a.IntValues = append(a.IntValues, second)
		b.Values = append(b.Values, float64(second)+0.5)
	}
	invalid.IntValues = []int64{1}
	result := must[*datav1.WriteResponse]("write")(client.Write(ctx, &datav1.WriteRequest{
		Series: []*datav1.TimeSeries{a, b, invalid}, Options: milliseconds,
	}))
	check("points written", result.GetWritten(), uint64(20))
	check("points failed", result.GetFailed(), uint64(1))
	failures := result.GetFailures()
	check("failed for good", failures.GetPermanent().GetFirst(), []uint64{20})
	check("one point", failures.GetPermanent().GetCount(), []uint64{1})
	check("nothing to retry", len(failures.GetRetryable().GetFirst()), 0)
	check("the failed point", failures.GetErrors()[0].GetFirst(), uint64(20))
	check("why", failures.GetErrors()[0].GetError().GetReason(), commonv1.ErrorReason_ERROR_REASON_INVALID_NAME)
}

// Points of one series, which the first message of a table declares.
func columns(metric string, first, count int64, isFirst bool) *datav1.Columns {
	block := &datav1.Columns_Block{Series: []uint32{0}, Timestamps: timestamps(first, count)}
	for number := range count {
		block.IntValues = append(block.IntValues, first+number)
	}
	message := &datav1.Columns{Blocks: []*datav1.Columns_Block{block}}
	if isFirst {
		message.NewSymbols = []string{metric, "host", "a"}
		message.NewSeries = []*datav1.Columns_SeriesDeclaration{{MetricSymbol: 0, TagSymbols: []uint32{1, 2}}}
	}
	return message
}

// The same with an encoding of timestamps.
func withDeltas(message *datav1.Columns, deltas []int64) *datav1.Columns {
	block := message.GetBlocks()[0]
	absolute := block.GetTimestamps()
	block.Timestamps = nil
	block.DeltaTimestamps = &datav1.DeltaTimestamps{
		First: absolute[0], Deltas: deltas, Last: absolute[len(absolute)-1],
	}
	return message
}

func writeColumns(ctx context.Context, client datav1.DataServiceClient) {
	deltas := make([]int64, 999)
	for number := range deltas {
		deltas[number] = 1000
	}
	for _, message := range []*datav1.Columns{
		columns("go.columns", 0, 1000, true),
		withDeltas(columns("go.deltas", 0, 1000, true), deltas),
	} {
		result := must[*datav1.WriteColumnsResponse]("write columns")(
			client.WriteColumns(ctx, &datav1.WriteColumnsRequest{Columns: message, Options: milliseconds}))
		check("points written in columns", result.GetWritten(), uint64(1000))
		check("points failed in columns", result.GetFailed(), uint64(0))
	}
}

// A write stream; frames get their sequence numbers here.
type stream struct {
	grpc.BidiStreamingClient[datav1.WriteStreamRequest, datav1.WriteStreamResponse]
	opened   *datav1.WriteStreamResponse_Opened
	sequence uint64
}

func openStream(ctx context.Context, client datav1.DataServiceClient) *stream {
	calls := must[grpc.BidiStreamingClient[datav1.WriteStreamRequest, datav1.WriteStreamResponse]]("stream")(
		client.WriteStream(ctx))
	opened := &stream{BidiStreamingClient: calls}
	opened.request(&datav1.WriteStreamRequest{Message: &datav1.WriteStreamRequest_Open_{
		Open: &datav1.WriteStreamRequest_Open{ClientName: "check in Go", Options: milliseconds},
	}})
	opened.opened = opened.response().GetOpened()
	return opened
}

func (s *stream) request(request *datav1.WriteStreamRequest) {
	if err := s.Send(request); err != nil {
		fail("send: %v", err)
	}
}

func (s *stream) frame(message *datav1.Columns) {
	s.sequence++
	s.request(&datav1.WriteStreamRequest{Message: &datav1.WriteStreamRequest_Frame_{
		Frame: &datav1.WriteStreamRequest_Frame{Sequence: s.sequence, Columns: message},
	}})
}

func (s *stream) response() *datav1.WriteStreamResponse {
	return must[*datav1.WriteStreamResponse]("response")(s.Recv())
}

// Closes our side; the server ends the stream with OK.
func (s *stream) close() {
	if err := s.CloseSend(); err != nil {
		fail("close: %v", err)
	}
	_, err := s.Recv()
	check("a closed stream ends with OK", errors.Is(err, io.EOF), true)
}

func writeStream(ctx context.Context, client datav1.DataServiceClient) {
	stream := openStream(ctx, client)
	limits := stream.opened
	check("windows", limits.GetWindowFrames() > 0 && limits.GetWindowPoints() > 0, true)
	check("limit of points", limits.GetMaxFramePoints() > 0, true)
	check("limits of declarations", limits.GetMaxSeries() > 0 && limits.GetMaxSymbolBytes() > 0, true)
	check("limit of bytes", limits.GetMaxMessageBytes() > 0, true)
	for frame := range int64(10) {
		stream.frame(columns("go.stream", frame*100, 100, frame == 0))
	}
	var sequence, written uint64
	for sequence < 10 {
		ack := stream.response().GetAck()
		check("acks are in order", ack.GetSequence() > sequence, true)
		sequence, written = ack.GetSequence(), written+ack.GetWritten()
	}
	check("points written on the stream", written, uint64(1000))
	stream.close()
}
