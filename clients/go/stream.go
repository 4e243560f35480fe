package writer

import (
	"context"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	commonv1 "oxtsdb.dev/writer/gen/oxtsdb/common/v1"
	datav1 "oxtsdb.dev/writer/gen/oxtsdb/data/v1"
)

// The tables and the window of a stream: its last `sent` frames, with `points` points, are not acknowledged.
type stream struct {
	grpc.BidiStreamingClient[datav1.WriteStreamRequest, datav1.WriteStreamResponse]
	connection  *grpc.ClientConn
	limits      *datav1.WriteStreamResponse_Opened
	draining    bool
	sequence    uint64
	sent        int
	points      uint64
	symbolBytes uint64
	symbols     map[string]uint32
	series      map[*Series]uint32
	failures    []*datav1.WriteStreamResponse_FrameFailures
}

func (w *Writer) openStream() error {
	if w.stream != nil {
		return nil
	}
	dial := w.Dial
	if dial == nil {
		dial = []grpc.DialOption{
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		}
	}
	endpoint := w.Endpoints[w.streams%len(w.Endpoints)]
	w.streams++
	connection, err := grpc.NewClient(endpoint, dial...)
	if err != nil {
		return err
	}
	client, err := datav1.NewDataServiceClient(connection).WriteStream(context.Background())
	if err != nil {
		connection.Close()
		return err
	}
	w.stream = &stream{
		BidiStreamingClient: client, connection: connection,
		symbols: map[string]uint32{}, series: map[*Series]uint32{},
	}
	open := &datav1.WriteStreamRequest_Open{ClientName: "writer.go", Options: &datav1.WriteOptions{
		TimeUnit: datav1.TimeUnit_TIME_UNIT_MILLISECONDS,
	}}
	// If the stream has failed, receiving returns why; so with each frame.
	_ = client.Send(&datav1.WriteStreamRequest{Message: &datav1.WriteStreamRequest_Open_{Open: open}})
	return nil
}

// Sends what the window admits.
func (w *Writer) send(s *stream) {
	for s.limits != nil && s.sent < len(w.queue) {
		batch := w.queue[s.sent]
		if limit := min(s.limits.GetMaxFramePoints(), s.limits.GetWindowPoints()); uint64(len(batch)) > limit {
			w.queue = slices.Replace(w.queue, s.sent, s.sent+1, batch[:limit], batch[limit:])
		} else if s.hasCapacity(batch) {
			_ = s.Send(s.frame(batch))
		} else {
			return
		}
	}
}

// Whether the window admits a batch. Full tables drain the stream: the next one has empty tables.
func (s *stream) hasCapacity(batch []Point) bool {
	isFull := len(s.series)+len(batch) > int(s.limits.GetMaxSeries()) || 2*s.symbolBytes > s.limits.GetMaxSymbolBytes()
	s.draining = s.draining || isFull && s.sequence > 0
	isWithin := s.sent < int(s.limits.GetWindowFrames()) && s.points+uint64(len(batch)) <= s.limits.GetWindowPoints()
	return !s.draining && (isWithin || s.sent == 0)
}

// The next frame: declarations that are new on the stream, and one block with all points.
func (s *stream) frame(batch []Point) *datav1.WriteStreamRequest {
	columns := &datav1.Columns{FirstSymbol: uint32(len(s.symbols)), FirstSeries: uint32(len(s.series))}
	block := &datav1.Columns_Block{}
	for _, point := range batch {
		number, isDeclared := s.series[point.Series]
		if !isDeclared {
			number = s.declare(point.Series, columns)
		}
		block.Series = append(block.Series, number)
		block.Timestamps = append(block.Timestamps, point.Timestamp)
		switch value := point.Value.(type) {
		case int64:
			block.IntValues = append(block.IntValues, value)
		case float64:
			block.Values = append(block.Values, value)
		}
	}
	columns.Blocks = []*datav1.Columns_Block{block}
	s.sequence, s.sent, s.points = s.sequence+1, s.sent+1, s.points+uint64(len(batch))
	frame := &datav1.WriteStreamRequest_Frame{Sequence: s.sequence, Columns: columns}
	return &datav1.WriteStreamRequest{Message: &datav1.WriteStreamRequest_Frame_{Frame: frame}}
}

func (s *stream) declare(series *Series, columns *datav1.Columns) uint32 {
	var symbols []uint32
	for _, name := range *series {
		if _, isDeclared := s.symbols[name]; !isDeclared {
			s.symbols[name] = uint32(len(s.symbols))
			s.symbolBytes += uint64(len(name))
			columns.NewSymbols = append(columns.NewSymbols, name)
		}
		symbols = append(symbols, s.symbols[name])
	}
	number := uint32(len(s.series))
	s.series[series] = number
	declaration := &datav1.Columns_SeriesDeclaration{MetricSymbol: symbols[0], TagSymbols: symbols[1:]}
	columns.NewSeries = append(columns.NewSeries, declaration)
	return number
}

// Handles one response, or the end of a stream that was drained.
func (w *Writer) receive(s *stream) error {
	if s.draining && s.sent == 0 {
		_ = s.CloseSend()
	}
	response, err := s.Recv()
	if err == io.EOF {
		w.endStream()
		return nil
	}
	if err != nil {
		return err
	}
	if opened := response.GetOpened(); opened != nil {
		s.limits = opened
	}
	s.draining = s.draining || response.GetDraining() != nil
	ack := response.GetAck()
	if ack.GetWritten() > 0 {
		w.backoff, w.failingSince = 0, time.Time{}
	}
	s.failures = append(s.failures, ack.GetFailures()...)
	for s.sent > 0 && s.sequence-uint64(s.sent) < ack.GetSequence() {
		batch := w.queue[0]
		w.queue, s.sent, s.points = w.queue[1:], s.sent-1, s.points-uint64(len(batch))
		for len(s.failures) > 0 && s.failures[0].GetSequence() <= s.sequence-uint64(s.sent) {
			failures := s.failures[0].GetFailures()
			s.failures = s.failures[1:]
			if err := w.report(batch, failures); err != nil {
				return err
			}
		}
	}
	return nil
}

// Reports the points of a batch that failed for good, and queues those again that may succeed later.
func (w *Writer) report(batch []Point, failures *datav1.Failures) error {
	errors := map[uint64]*commonv1.ItemError{}
	for _, failed := range failures.GetErrors() {
		for point := range failed.GetCount() {
			errors[failed.GetFirst()+point] = failed.GetError()
		}
	}
	for run, first := range failures.GetPermanent().GetFirst() {
		for point := first; point < first+failures.GetPermanent().GetCount()[run] && w.OnFailed != nil; point++ {
			w.OnFailed(batch[point], errors[point])
		}
	}
	var again []Point
	for run, first := range failures.GetRetryable().GetFirst() {
		again = append(again, batch[first:first+failures.GetRetryable().GetCount()[run]]...)
	}
	if again == nil {
		return nil
	}
	w.queue = append(w.queue, again)
	cause := errors[failures.GetRetryable().GetFirst()[0]].GetMessage()
	return w.pause(status.Error(codes.Unavailable, cause), retryPause)
}
