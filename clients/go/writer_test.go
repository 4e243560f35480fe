package writer

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	commonv1 "oxtsdb.dev/writer/gen/oxtsdb/common/v1"
	datav1 "oxtsdb.dev/writer/gen/oxtsdb/data/v1"
)

// Points are recent; rows are hours.
var start = time.Now().Truncate(time.Hour).Add(-2 * time.Hour)

var one = &Series{"writer.test", "host", "a"}

// `tsdb serve` with a folder of its own; started again, it has the same ports.
type server struct {
	t       *testing.T
	folder  string
	ports   map[string]string
	command *exec.Cmd
}

func startServer(t *testing.T) *server {
	s := &server{t: t, folder: t.TempDir(), ports: map[string]string{"http": "0", "data": "0", "uid": "0"}}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) start() {
	arguments := []string{"serve", "--admin-listen=none", "--data-dir", filepath.Join(s.folder, "data")}
	for name, port := range s.ports {
		arguments = append(arguments, fmt.Sprintf("--%s-listen=127.0.0.1:%s", name, port))
	}
	s.command = exec.Command(os.Getenv("OXTSDB_TSDB"), arguments...)
	s.command.Stderr = os.Stderr
	output, err := s.command.StdoutPipe()
	if err == nil {
		err = s.command.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	ready, _ := bufio.NewReader(output).ReadString('\n')
	for _, found := range regexp.MustCompile(`(\w+)=127.0.0.1:(\d+)`).FindAllStringSubmatch(ready, -1) {
		s.ports[found[1]] = found[2]
	}
	if s.ports["data"] == "0" {
		s.t.Fatalf("no server: %q", ready)
	}
}

func (s *server) endpoint() string { return "127.0.0.1:" + s.ports["data"] }

func (s *server) kill() {
	_ = s.command.Process.Kill()
	_ = s.command.Wait()
}

// Values of a metric by second from the start.
func (s *server) points(metric string) map[int64]float64 {
	url := fmt.Sprintf("http://127.0.0.1:%s/api/query?start=%d&end=%d&m=sum:%s",
		s.ports["http"], start.Unix(), start.Unix()+4*3600, metric)
	response, err := http.Get(url)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	var results []struct{ Dps map[int64]float64 }
	points := map[int64]float64{}
	// An unknown metric is an error object: no points.
	if json.NewDecoder(response.Body).Decode(&results) == nil {
		for _, result := range results {
			for second, value := range result.Dps {
				points[second-start.Unix()] = value
			}
		}
	}
	return points
}

// A server that acknowledges a frame for each permit, and records what it receives.
type fakeServer struct {
	datav1.UnimplementedDataServiceServer
	limits       *datav1.WriteStreamResponse_Opened
	permits      chan bool
	failures     map[int]*datav1.Failures
	breaks       []error
	mutex        sync.Mutex
	frames       []*datav1.Columns
	streams      int
	inFlight     int
	mostInFlight int
}

func startFake(t *testing.T, change func(*fakeServer)) (*fakeServer, string) {
	fake := &fakeServer{
		limits: &datav1.WriteStreamResponse_Opened{
			WindowFrames: 64, WindowPoints: 1000, MaxFramePoints: 1000,
			MaxSeries: 100, MaxSymbolBytes: 1 << 20, MaxMessageBytes: 1 << 24,
		},
		permits: make(chan bool, 100), failures: map[int]*datav1.Failures{},
	}
	change(fake)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	datav1.RegisterDataServiceServer(server, fake)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return fake, listener.Addr().String()
}

func (f *fakeServer) permit(count int) {
	for range count {
		f.permits <- true
	}
}

func (f *fakeServer) WriteStream(
	stream grpc.BidiStreamingServer[datav1.WriteStreamRequest, datav1.WriteStreamResponse],
) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	f.streams++
	if len(f.breaks) > 0 {
		err := f.breaks[0]
		f.breaks = f.breaks[1:]
		return err
	}
	opened := &datav1.WriteStreamResponse_Opened_{Opened: f.limits}
	if err := stream.Send(&datav1.WriteStreamResponse{Message: opened}); err != nil {
		return err
	}
	received := make(chan int, 100)
	go func() {
		defer close(received)
		for {
			request, err := stream.Recv()
			if err != nil {
				return
			}
			f.mutex.Lock()
			f.frames = append(f.frames, request.GetFrame().GetColumns())
			f.inFlight++
			f.mostInFlight = max(f.mostInFlight, f.inFlight)
			received <- len(f.frames)
			f.mutex.Unlock()
		}
	}()
	sequence := uint64(0)
	for number := range received {
		<-f.permits
		sequence++
		ack := &datav1.WriteStreamResponse_Ack{Sequence: sequence, Written: 1}
		if failures := f.failures[number]; failures != nil {
			ack.Failures = []*datav1.WriteStreamResponse_FrameFailures{{Sequence: sequence, Failures: failures}}
		}
		f.mutex.Lock()
		f.inFlight--
		f.mutex.Unlock()
		message := &datav1.WriteStreamResponse_Ack_{Ack: ack}
		if err := stream.Send(&datav1.WriteStreamResponse{Message: message}); err != nil {
			return err
		}
	}
	return nil
}

// The values of each frame that was received.
func (f *fakeServer) values() [][]int64 {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	var all [][]int64
	for _, frame := range f.frames {
		all = append(all, frame.GetBlocks()[0].GetIntValues())
	}
	return all
}

func (f *fakeServer) waitForFrames(t *testing.T, count int) {
	for deadline := time.Now().Add(30 * time.Second); len(f.values()) < count; {
		if time.Now().After(deadline) {
			t.Fatalf("%d frames, expected %d", len(f.values()), count)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func equal(t *testing.T, what string, actual, expected any) {
	t.Helper()
	if !reflect.DeepEqual(actual, expected) {
		t.Fatalf("%s: expected %v, got %v", what, expected, actual)
	}
}

func succeed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func appendPoints(t *testing.T, writer *Writer, from, to int64) {
	t.Helper()
	for number := from; number < to; number++ {
		succeed(t, writer.Append(one, start.UnixMilli()+number*1000, number))
	}
}

func allPoints(count int64) map[int64]float64 {
	points := map[int64]float64{}
	for number := range count {
		points[number] = float64(number)
	}
	return points
}

func TestADrainLosesNothing(t *testing.T) {
	first, second := startServer(t), startServer(t)
	writer := &Writer{Endpoints: []string{first.endpoint(), second.endpoint()}, BatchPoints: 100}
	appendPoints(t, writer, 0, 1000)
	succeed(t, writer.Flush())
	appendPoints(t, writer, 1000, 2000)
	succeed(t, first.command.Process.Signal(syscall.SIGTERM))
	count := int64(2000)
	for len(second.points("writer.test")) == 0 {
		if count > 7000 {
			t.Fatal("the writer stays with a server that drains")
		}
		appendPoints(t, writer, count, count+20)
		succeed(t, writer.Flush())
		count += 20
	}
	succeed(t, writer.Close())
	_ = first.command.Wait()
	first.start()
	stored := first.points("writer.test")
	for second, value := range second.points("writer.test") {
		stored[second] = value
	}
	equal(t, "points of both servers", stored, allPoints(count))
}

func TestAKilledServerThatIsStartedAgainLosesNothing(t *testing.T) {
	server := startServer(t)
	writer := &Writer{Endpoints: []string{server.endpoint()}, BatchPoints: 100}
	appendPoints(t, writer, 0, 1000)
	succeed(t, writer.Flush())
	appendPoints(t, writer, 1000, 2000)
	server.kill()
	restarted := make(chan bool)
	time.AfterFunc(500*time.Millisecond, func() {
		server.start()
		close(restarted)
	})
	appendPoints(t, writer, 2000, 5000)
	succeed(t, writer.Close())
	<-restarted
	equal(t, "points", server.points("writer.test"), allPoints(5000))
}

func TestReportsFailedPointsWithWhichAndWhy(t *testing.T) {
	failed := map[float64]commonv1.ErrorReason{}
	writer := &Writer{
		Endpoints:   []string{startServer(t).endpoint()},
		BatchPoints: 10,
		OnFailed:    func(point Point, err *commonv1.ItemError) { failed[point.Value.(float64)] = err.GetReason() },
	}
	invalid := &Series{"not a name", "host", "a"}
	for number := range int64(25) {
		series := one
		if number%10 == 3 {
			series = invalid
		}
		succeed(t, writer.Append(series, start.UnixMilli()+number*1000, float64(number)))
	}
	succeed(t, writer.Append(one, start.Unix(), 100.0)) // seconds in place of milliseconds
	succeed(t, writer.Close())
	equal(t, "failed points", failed, map[float64]commonv1.ErrorReason{
		3:   commonv1.ErrorReason_ERROR_REASON_INVALID_NAME,
		13:  commonv1.ErrorReason_ERROR_REASON_INVALID_NAME,
		23:  commonv1.ErrorReason_ERROR_REASON_INVALID_NAME,
		100: commonv1.ErrorReason_ERROR_REASON_IMPLAUSIBLE_TIMESTAMP,
	})
}

func TestKeepsTheWindow(t *testing.T) {
	fake, endpoint := startFake(t, func(fake *fakeServer) { fake.limits.WindowFrames = 3 })
	writer := &Writer{Endpoints: []string{endpoint}, BatchPoints: 10}
	appended := make(chan bool)
	go func() {
		appendPoints(t, writer, 0, 100)
		close(appended)
	}()
	fake.waitForFrames(t, 3)
	select {
	case <-appended:
		t.Fatal("appended beyond the window")
	case <-time.After(200 * time.Millisecond):
	}
	equal(t, "frames in flight", len(fake.values()), 3)
	fake.permit(10)
	<-appended
	succeed(t, writer.Close())
	equal(t, "most frames in flight", fake.mostInFlight, 3)
	equal(t, "points", len(slices.Concat(fake.values()...)), 100)
}

func TestSplitsBatchesAtTheLimitOfAFrame(t *testing.T) {
	fake, endpoint := startFake(t, func(fake *fakeServer) { fake.limits.MaxFramePoints = 4 })
	fake.permit(3)
	writer := &Writer{Endpoints: []string{endpoint}}
	appendPoints(t, writer, 0, 10)
	succeed(t, writer.Close())
	equal(t, "frames", fake.values(), [][]int64{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}})
}

func TestBeginsANewStreamWhenTheTablesAreFull(t *testing.T) {
	fake, endpoint := startFake(t, func(fake *fakeServer) { fake.limits.MaxSeries = 3 })
	fake.permit(4)
	writer := &Writer{Endpoints: []string{endpoint}, BatchPoints: 2}
	for number := range int64(8) {
		series := &Series{"writer.test", "host", fmt.Sprint(number)}
		succeed(t, writer.Append(series, start.UnixMilli(), number))
	}
	succeed(t, writer.Close())
	equal(t, "frames", fake.values(), [][]int64{{0, 1}, {2, 3}, {4, 5}, {6, 7}})
	equal(t, "streams", fake.streams, 4)
	for _, frame := range fake.frames {
		equal(t, "first numbers", frame.GetFirstSymbol()+frame.GetFirstSeries(), uint32(0))
	}
}

func TestResendsRetryablePoints(t *testing.T) {
	fake, endpoint := startFake(t, func(fake *fakeServer) {
		fake.failures[1] = &datav1.Failures{Retryable: &datav1.PointRuns{First: []uint64{2}, Count: []uint64{3}}}
	})
	fake.permit(2)
	writer := &Writer{Endpoints: []string{endpoint}}
	appendPoints(t, writer, 0, 10)
	succeed(t, writer.Close())
	equal(t, "frames", fake.values(), [][]int64{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {2, 3, 4}})
}

func TestTheLaterPointOfAnInstantWinsAfterARetry(t *testing.T) {
	fake, endpoint := startFake(t, func(fake *fakeServer) {
		fake.failures[1] = &datav1.Failures{Retryable: &datav1.PointRuns{First: []uint64{1}, Count: []uint64{2}}}
	})
	fake.permit(3)
	writer := &Writer{Endpoints: []string{endpoint}, BatchPoints: 4}
	same := &Series{"writer.test", "host", "a"}
	for index, second := range []int64{0, 1, 2, 1, 2, 3, 2, 1} {
		series := one
		if index%2 == 1 {
			series = same
		}
		succeed(t, writer.Append(series, start.UnixMilli()+second*1000, 10+int64(index)))
	}
	succeed(t, writer.Close())
	// All others are stored already.
	equal(t, "frames", fake.values(), [][]int64{{10, 11, 12, 13}, {14, 15, 16, 17}, {11, 12, 13, 14, 16, 17}})
}

func TestPointsOfAnInstantKeepTheirOrderWhateverTheirTypes(t *testing.T) {
	server := startServer(t)
	writer := &Writer{Endpoints: []string{server.endpoint()}}
	two, reordered := &Series{"writer.two", "host", "a", "cpu", "0"}, &Series{"writer.two", "cpu", "0", "host", "a"}
	at := start.UnixMilli()
	succeed(t, writer.Append(one, at, 0.5))
	succeed(t, writer.Append(two, at, 1.5))
	succeed(t, writer.Append(one, at, int64(2)))
	succeed(t, writer.Append(reordered, at, int64(3)))
	succeed(t, writer.Append(one, at+1000, 4.5))
	succeed(t, writer.Close())
	equal(t, "points", server.points("writer.test"), map[int64]float64{0: 2, 1: 4.5})
	equal(t, "points of reordered tags", server.points("writer.two"), map[int64]float64{0: 3})
}

func TestPointsOfOneTypeAreOneBlock(t *testing.T) {
	fake, endpoint := startFake(t, func(*fakeServer) {})
	fake.permit(1)
	writer := &Writer{Endpoints: []string{endpoint}}
	for number := range int64(10) {
		value := any(number)
		if number%2 == 0 {
			value = float64(number)
		}
		succeed(t, writer.Append(one, start.UnixMilli()+number*1000, value))
	}
	succeed(t, writer.Close())
	equal(t, "blocks", len(fake.frames[0].GetBlocks()), 2)
}

func TestResendsAfterAResetBehindAProxyButNotAfterAnErrorOfAServer(t *testing.T) {
	reset := status.New(codes.Internal, "stream terminated by RST_STREAM")
	fake, endpoint := startFake(t, func(fake *fakeServer) { fake.breaks = []error{reset.Err()} })
	fake.permit(1)
	writer := &Writer{Endpoints: []string{endpoint}}
	appendPoints(t, writer, 0, 3)
	succeed(t, writer.Close())
	equal(t, "frames", fake.values(), [][]int64{{0, 1, 2}})
	ofServer, err := reset.WithDetails(&errdetails.ErrorInfo{Reason: "INTERNAL"})
	succeed(t, err)
	_, endpoint = startFake(t, func(fake *fakeServer) { fake.breaks = []error{ofServer.Err()} })
	writer = &Writer{Endpoints: []string{endpoint}}
	appendPoints(t, writer, 0, 3)
	if err := writer.Flush(); status.Code(err) != codes.Internal {
		t.Fatalf("expected Internal, got %v", err)
	}
}

func TestFailsWhenPatienceEndsAndKeepsThePoints(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	succeed(t, err)
	unused := listener.Addr().String()
	succeed(t, listener.Close())
	writer := &Writer{Endpoints: []string{unused}, Patience: 300 * time.Millisecond}
	appendPoints(t, writer, 0, 3)
	if err := writer.Flush(); err == nil || !strings.Contains(err.Error(), "Unavailable") {
		t.Fatalf("expected Unavailable, got %v", err)
	}
	fake, endpoint := startFake(t, func(*fakeServer) {})
	fake.permit(1)
	writer.Endpoints = []string{endpoint}
	succeed(t, writer.Close())
	equal(t, "frames", fake.values(), [][]int64{{0, 1, 2}})
	equal(t, "a value of another type", writer.Append(one, 0, math.MaxInt8) != nil, true)
}

func TestTheExampleOfTheReadme(t *testing.T) {
	server := startServer(t)
	readme, err := os.ReadFile("README.md")
	succeed(t, err)
	example := regexp.MustCompile("(?s)```go\n(.*?)```").FindSubmatch(readme)[1]
	folder := filepath.Join("gen", "example")
	succeed(t, os.MkdirAll(folder, 0o755))
	text := strings.Replace(string(example), `"127.0.0.1:4243", "127.0.0.1:5243"`, `"`+server.endpoint()+`"`, 1)
	succeed(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(text), 0o644))
	if output, err := exec.Command("go", "run", "./"+folder).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	equal(t, "points", len(server.points("sys.cpu.user")), 1000)
}
