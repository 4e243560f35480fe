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
	for s.limits != nil && len(w.again) == 0 && s.sent < len(w.queue) {
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

// The next frame: declarations that are new on the stream, and a block for each run of points with one type of value.
func (s *stream) frame(batch []Point) *datav1.WriteStreamRequest {
	columns := &datav1.Columns{FirstSymbol: uint32(len(s.symbols)), FirstSeries: uint32(len(s.series))}
	var block *datav1.Columns_Block
	for index, point := range batch {
		if index == 0 || point.isFloat() != batch[index-1].isFloat() {
			block = &datav1.Columns_Block{}
			columns.Blocks = append(columns.Blocks, block)
		}
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
		var failures []*datav1.Failures
		for len(s.failures) > 0 && s.failures[0].GetSequence() <= s.sequence-uint64(s.sent) {
			failures = append(failures, s.failures[0].GetFailures())
			s.failures = s.failures[1:]
		}
		if len(failures)+len(w.again) > 0 {
			w.report(batch, failures)
		}
	}
	if len(w.again) > 0 && s.sent == 0 {
		w.requeue()
		return w.pause(w.cause, retryPause)
	}
	return nil
}

// Reports the points of a batch that failed for good. Keeps those that may succeed later, and behind them all later
// points of their instants, which have to win.
func (w *Writer) report(batch []Point, failures []*datav1.Failures) {
	errors, permanent, retryable := map[uint64]*commonv1.ItemError{}, map[uint64]bool{}, map[uint64]bool{}
	for _, each := range failures {
		for _, failed := range each.GetErrors() {
			for point := range failed.GetCount() {
				errors[failed.GetFirst()+point] = failed.GetError()
			}
		}
		add(permanent, each.GetPermanent())
		add(retryable, each.GetRetryable())
	}
	names, instants := names{}, map[instant]bool{}
	for _, point := range w.again {
		instants[names.instant(point)] = true
	}
	for index, point := range batch {
		number := uint64(index)
		switch {
		case permanent[number] && w.OnFailed != nil:
			w.OnFailed(point, errors[number])
		case permanent[number]:
		case retryable[number] || len(instants) > 0 && instants[names.instant(point)]:
			if len(w.again) == 0 {
				w.cause = status.Error(codes.Unavailable, errors[number].GetMessage())
			}
			w.again = append(w.again, point)
			instants[names.instant(point)] = true
		}
	}
}

func add(points map[uint64]bool, runs *datav1.PointRuns) {
	for run, first := range runs.GetFirst() {
		for offset := range runs.GetCount()[run] {
			points[first+offset] = true
		}
	}
}
