// Package writer writes points over WriteStream: batches them, and resends what no server has acknowledged.
package writer

import (
	"cmp"
	"fmt"
	"slices"
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

// Writer writes in the caller's goroutine. All fields but Endpoints have a default.
type Writer struct {
	Endpoints   []string
	OnFailed    func(Point, *commonv1.ItemError) // gets the points that a server rejects for good
	Dial        []grpc.DialOption                // without TLS
	BatchPoints int                              // 4096
	Patience    time.Duration                    // to retry while nothing is stored: a minute

	mutex        sync.Mutex
	batches      [2][]Point // integers, floating-point numbers
	queue        [][]Point  // not acknowledged, sent ones first
	stream       *stream
	streams      int
	backoff      time.Duration
	failingSince time.Time
}

// Append sends a batch when it is complete, and blocks while the server's window is full.
func (w *Writer) Append(series *Series, timestamp int64, value any) error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	kind := 0
	switch value.(type) {
	case int64:
	case float64:
		kind = 1
	default:
		return fmt.Errorf("value %v is neither int64 nor float64", value)
	}
	w.batches[kind] = append(w.batches[kind], Point{series, timestamp, value})
	if len(w.batches[kind]) < cmp.Or(w.BatchPoints, 4096) {
		return nil
	}
	w.seal(kind)
	return w.write(func() bool { return w.stream.sent == len(w.queue) })
}

// Flush returns when all points are stored or failed. After an error no point is lost: Flush tries again.
func (w *Writer) Flush() error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.seal(0)
	w.seal(1)
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
}

func (w *Writer) seal(kind int) {
	if batch := w.batches[kind]; len(batch) > 0 {
		w.queue, w.batches[kind] = append(w.queue, batch), nil
	}
}

func (w *Writer) write(isDone func() bool) error {
	for len(w.queue) > 0 {
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
