// Package writer writes points over WriteStream: batches them, and resends what no server has acknowledged.
package writer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	commonv1 "oxtsdb.dev/writer/gen/oxtsdb/common/v1"
)

const retryPause, minBackoff, maxBackoff = time.Second, 50 * time.Millisecond, 2 * time.Second

// Series is a metric and its tags as key, value, key, value. Keep it: each *Series is declared for itself.
type Series []string

// Point has milliseconds as its timestamp, and an int64 or a float64 as its value.
type Point struct {
	Series    *Series
	Timestamp int64
	Value     any
}

func (p Point) isFloat() int {
	if _, isFloat := p.Value.(float64); isFloat {
		return 1
	}
	return 0
}

type instant struct {
	series    string
	timestamp int64
}

// Names of series, whatever the order of their tags.
type names map[*Series]string

func (n names) instant(p Point) instant {
	name, isKnown := n[p.Series]
	if !isKnown {
		tags := slices.SortedFunc(slices.Chunk((*p.Series)[1:], 2), slices.Compare)
		name = strings.Join(append(slices.Concat(tags...), (*p.Series)[0]), "\x00")
		n[p.Series] = name
	}
	return instant{name, p.Timestamp}
}

// Writer writes in the caller's goroutine. All fields but Endpoints have a default.
type Writer struct {
	Endpoints   []string
	OnFailed    func(Point, *commonv1.ItemError) // gets the points that a server rejects for good
	Dial        []grpc.DialOption                // without TLS
	BatchPoints int                              // 4096
	Patience    time.Duration                    // to retry while nothing is stored: a minute

	mutex        sync.Mutex
	batch        []Point
	queue        [][]Point // not acknowledged, sent ones first
	again        []Point   // acknowledged, to send before the queue; no frame is sent until all in flight are acknowledged
	cause        error
	stream       *stream
	streams      int
	backoff      time.Duration
	failingSince time.Time
}

// Append sends a batch when it is complete, and blocks while the server's window is full.
func (w *Writer) Append(series *Series, timestamp int64, value any) error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	switch value.(type) {
	case int64, float64:
	default:
		return fmt.Errorf("value %v is neither int64 nor float64", value)
	}
	w.batch = append(w.batch, Point{series, timestamp, value})
	if len(w.batch) < cmp.Or(w.BatchPoints, 4096) {
		return nil
	}
	w.seal()
	return w.write(func() bool { return w.stream.sent == len(w.queue) })
}

// Flush returns when all points are stored or failed. After an error no point is lost: Flush tries again.
func (w *Writer) Flush() error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.seal()
	return w.write(func() bool { return false })
}

// Close flushes, and ends the stream.
func (w *Writer) Close() error {
	defer w.endStream()
	return w.Flush()
}

func (w *Writer) endStream() {
	if w.stream != nil {
		w.stream.connection.Close()
		w.stream = nil
	}
	w.requeue()
}

func (w *Writer) seal() {
	if len(w.batch) > 0 {
		w.queue, w.batch = append(w.queue, byType(w.batch)), nil
	}
}

func (w *Writer) requeue() {
	if len(w.again) > 0 {
		w.queue, w.again = slices.Insert(w.queue, 0, byType(w.again)), nil
	}
}

// A block has one type of value. Points keep their order if two have one instant, because the later one wins.
func byType(batch []Point) []Point {
	floats := 0
	for _, point := range batch {
		floats += point.isFloat()
	}
	if floats == 0 || floats == len(batch) {
		return batch
	}
	names, instants := names{}, map[instant]bool{}
	for _, point := range batch {
		instants[names.instant(point)] = true
	}
	if len(instants) == len(batch) {
		slices.SortStableFunc(batch, func(a, b Point) int { return a.isFloat() - b.isFloat() })
	}
	return batch
}

func (w *Writer) write(isDone func() bool) error {
	for len(w.queue)+len(w.again) > 0 {
		err := w.openStream()
		if err == nil {
			w.send(w.stream)
			if isDone() {
				return nil
			}
			err = w.receive(w.stream)
		}
		if err != nil {
			w.endStream()
			w.backoff = min(max(2*w.backoff, minBackoff), maxBackoff)
			if err = w.pause(err, w.backoff); err != nil {
				return err
			}
		}
	}
	return nil
}

// Waits before a retry. Fails if that is useless, or if nothing was stored for Patience.
func (w *Writer) pause(err error, pause time.Duration) error {
	transient := []codes.Code{codes.Unavailable, codes.Aborted, codes.DeadlineExceeded, codes.Canceled}
	// A proxy reports a stream that was reset as INTERNAL; a server says in the details why it failed.
	isReset := status.Code(err) == codes.Internal && len(status.Convert(err).Details()) == 0
	if w.failingSince.IsZero() {
		w.failingSince = time.Now()
	}
	if !(isReset || slices.Contains(transient, status.Code(err))) || time.Since(w.failingSince) > cmp.Or(w.Patience, time.Minute) {
		w.failingSince = time.Time{}
		return err
	}
	time.Sleep(pause)
	return nil
}
