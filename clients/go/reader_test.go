package writer

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	commonv1 "oxtsdb.dev/writer/gen/oxtsdb/common/v1"
	datav1 "oxtsdb.dev/writer/gen/oxtsdb/data/v1"
)

// A server that responds with the same frames to each query, and fails the first one with a code.
type queryServer struct {
	datav1.UnimplementedDataServiceServer
	frames    []*datav1.QueryResponse
	code      codes.Code
	queries   atomic.Int32
	cancelled chan bool
}

func (s *queryServer) Query(_ *datav1.QueryRequest, stream grpc.ServerStreamingServer[datav1.QueryResponse]) error {
	if s.queries.Add(1) == 1 && s.code != codes.OK {
		return status.Error(s.code, "for now")
	}
	for _, frame := range s.frames {
		if err := stream.Send(frame); err != nil {
			return err
		}
	}
	if s.cancelled != nil {
		<-stream.Context().Done()
		close(s.cancelled)
	}
	return nil
}

func connect(t *testing.T, endpoint string) *grpc.ClientConn {
	connection, err := grpc.NewClient(endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(QueryRetry))
	succeed(t, err)
	t.Cleanup(func() { connection.Close() })
	return connection
}

func (s *queryServer) connect(t *testing.T) *grpc.ClientConn {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	succeed(t, err)
	server := grpc.NewServer()
	datav1.RegisterDataServiceServer(server, s)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return connect(t, listener.Addr().String())
}

func head(number uint32, host string) *datav1.QueryResponse {
	series := &datav1.QueryResponse_Series{Series: number, Metric: "m", Tags: map[string]string{"host": host}}
	return &datav1.QueryResponse{Frame: &datav1.QueryResponse_Series_{Series: series}}
}

func pointsOf(points *datav1.QueryResponse_Points) *datav1.QueryResponse {
	return &datav1.QueryResponse{Frame: &datav1.QueryResponse_Points_{Points: points}}
}

var last = &datav1.QueryResponse{Frame: &datav1.QueryResponse_Statistics_{Statistics: &datav1.QueryResponse_Statistics{}}}

func request(queries ...*datav1.SubQuery) *datav1.QueryRequest {
	return &datav1.QueryRequest{
		Range: &commonv1.TimeRange{
			Start: &commonv1.TimeRange_StartMs{StartMs: start.UnixMilli()},
			End:   &commonv1.TimeRange_EndMs{EndMs: start.UnixMilli() + 4*3_600_000},
		},
		Queries: queries, DeltaTimestamps: true,
	}
}

func TestReadsWhatWasWritten(t *testing.T) {
	server := startServer(t)
	writer := &Writer{Endpoints: []string{server.endpoint()}}
	at := start.UnixMilli()
	const large = 1<<53 + 1
	for second := range int64(3) {
		succeed(t, writer.Append(&Series{"reader.m", "host", "a", "dc", "lga"}, at+second*1000, large+second))
		succeed(t, writer.Append(&Series{"reader.m", "host", "b", "dc", "lga"}, at+second*1000, float64(second)+0.5))
	}
	succeed(t, writer.Close())
	connection := connect(t, server.endpoint())
	all, err := ReadAll(t.Context(), connection, request(
		Select("sum", "reader.m", map[string]string{"host": "*"}), Select("max", "reader.m", map[string]string{"host": "b|c"})))
	if err == nil {
		t.Fatal("`c` is no name")
	}
	equal(t, "code", status.Code(err), codes.NotFound)
	all, err = ReadAll(t.Context(), connection, request(
		Select("sum", "reader.m", map[string]string{"host": "*"}), Select("count", "reader.m", nil)))
	succeed(t, err)
	equal(t, "groups", len(all), 3)
	times := []int64{at, at + 1000, at + 2000}
	equal(t, "tags", all[0].Tags, map[string]string{"host": "a", "dc": "lga"})
	equal(t, "timestamps", all[0].Timestamps, times)
	equal(t, "integers", all[0].Integers, []int64{large, large + 1, large + 2})
	equal(t, "values", all[1].Values, []float64{0.5, 1.5, 2.5})
	equal(t, "no integers", all[1].Integers == nil, true)
	equal(t, "sub-query and aggregated tags", []any{all[2].Query, all[2].AggregateTags}, []any{1, []string{"host"}})
}

func TestPointsOfSeveralGroupsMayComeInTurn(t *testing.T) {
	server := &queryServer{frames: []*datav1.QueryResponse{
		head(0, "a"), head(1, "b"),
		pointsOf(&datav1.QueryResponse_Points{Series: 0, TimestampsMs: []int64{1, 2}, IntValues: []int64{1, 2}}),
		pointsOf(&datav1.QueryResponse_Points{Series: 1, TimestampsMs: []int64{1}, Values: []float64{0.5}}),
		pointsOf(&datav1.QueryResponse_Points{Series: 0, TimestampsMs: []int64{3}, Values: []float64{2.5}}),
		last,
	}}
	connection := server.connect(t)
	var hosts []string
	for points, err := range Read(t.Context(), connection, request()) {
		succeed(t, err)
		hosts = append(hosts, points.Tags["host"])
	}
	equal(t, "hosts", hosts, []string{"a", "b", "a"})
	all, err := ReadAll(t.Context(), connection, request())
	succeed(t, err)
	equal(t, "timestamps", all[0].Timestamps, []int64{1, 2, 3})
	equal(t, "values", all[0].Values, []float64{1, 2, 2.5})
	equal(t, "integers", all[0].Integers, []int64(nil))
}

func TestAnIncompleteOrWrongResultIsAnError(t *testing.T) {
	one := &datav1.QueryResponse_Points{TimestampsMs: []int64{1}, Values: []float64{1}}
	wrong := &datav1.DeltaTimestamps{First: 1, Deltas: []int64{1}, Last: 3}
	for message, frames := range map[string][]*datav1.QueryResponse{
		io.ErrUnexpectedEOF.Error():                 {head(0, "a"), pointsOf(one)},
		"of series 0, declared false":               {pointsOf(one), last},
		"timestamps add up to 2 in place of 3":      {head(0, "a"), pointsOf(&datav1.QueryResponse_Points{DeltaTimestamps: wrong}), last},
		"0 values for 1 timestamps of series 0, de": {head(0, "a"), pointsOf(&datav1.QueryResponse_Points{TimestampsMs: []int64{1}}), last},
	} {
		_, err := ReadAll(t.Context(), (&queryServer{frames: frames}).connect(t), request())
		if err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("expected %q, got %v", message, err)
		}
	}
}

func TestAServerThatIsAwayForNowIsAskedAgain(t *testing.T) {
	server := &queryServer{code: codes.Unavailable, frames: []*datav1.QueryResponse{last}}
	_, err := ReadAll(t.Context(), server.connect(t), request())
	succeed(t, err)
	equal(t, "queries", server.queries.Load(), int32(2))
	server = &queryServer{code: codes.InvalidArgument}
	_, err = ReadAll(t.Context(), server.connect(t), request())
	equal(t, "code", status.Code(err), codes.InvalidArgument)
	equal(t, "queries", server.queries.Load(), int32(1))
}

func TestBreakingOffCancelsTheQuery(t *testing.T) {
	one := pointsOf(&datav1.QueryResponse_Points{TimestampsMs: []int64{1}, Values: []float64{1}})
	server := &queryServer{cancelled: make(chan bool), frames: []*datav1.QueryResponse{head(0, "a"), one}}
	for _, err := range Read(t.Context(), server.connect(t), request()) {
		succeed(t, err)
		break
	}
	select {
	case <-server.cancelled:
	case <-time.After(30 * time.Second):
		t.Fatal("the query runs on")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := ReadAll(ctx, server.connect(t), request())
	equal(t, "code", status.Code(err), codes.Canceled)
	equal(t, "no end", errors.Is(err, io.EOF), false)
}

func TestTheExampleOfTheReader(t *testing.T) {
	server := startServer(t)
	writer := &Writer{Endpoints: []string{server.endpoint()}}
	now := time.Now().UnixMilli()
	for minute := range int64(30) {
		succeed(t, writer.Append(&Series{"sys.cpu.user", "host", "a"}, now-minute*60_000, minute))
	}
	succeed(t, writer.Close())
	readme, err := os.ReadFile("README.md")
	succeed(t, err)
	example := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(readme, -1)[1][1]
	folder := filepath.Join("gen", "reader_example")
	succeed(t, os.MkdirAll(folder, 0o755))
	text := strings.Replace(string(example), "127.0.0.1:4243", server.endpoint(), 1)
	succeed(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(text), 0o644))
	output, err := exec.Command("go", "run", "./"+folder).CombinedOutput()
	if err != nil || !strings.Contains(string(output), "sys.cpu.user map[host:a] 30 points") {
		t.Fatalf("%v: %s", err, output)
	}
}
