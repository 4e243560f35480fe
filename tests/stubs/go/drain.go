package main

import (
	"context"
	"errors"
	"io"
	"syscall"

	"google.golang.org/grpc/codes"

	datav1 "oxtsdb.dev/stubs/gen/oxtsdb/data/v1"
)

const drainFrames = 20

// A drain between frames: what the first server did not acknowledge goes to the second.
func drain(ctx context.Context, first, second datav1.DataServiceClient, firstServer int) {
	frame := func(number uint64, isFirst bool) *datav1.Columns {
		return columns("go.drain", int64(number)*100, 100, isFirst)
	}
	active, idle := openStream(ctx, first), openStream(ctx, first)
	for number := range uint64(10) {
		active.frame(frame(number, number == 0))
	}
	acked := active.response().GetAck().GetSequence()
	if err := syscall.Kill(firstServer, syscall.SIGTERM); err != nil {
		fail("SIGTERM: %v", err)
	}
	for isDraining := false; !isDraining || acked < active.sequence; {
		response := active.response()
		if draining := response.GetDraining(); draining != nil {
			isDraining = true
			check("it waits", draining.GetGrace().AsDuration() > 0, true)
		} else {
			acked = response.GetAck().GetSequence()
		}
	}
	active.close()

	var err error
	for err == nil {
		_, err = idle.Recv()
	}
	found := rejected("a stream that is not closed", err, codes.Unavailable, "DRAINING")
	check("when to retry", found.retry.GetRetryDelay().AsDuration() > 0, true)

	resent := openStream(ctx, second)
	for number := acked; number < drainFrames; number++ {
		resent.frame(frame(number, number == acked))
	}
	if err := resent.CloseSend(); err != nil {
		fail("close: %v", err)
	}
	var written uint64
	for {
		response, err := resent.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		written += must[*datav1.WriteStreamResponse]("ack")(response, err).GetAck().GetWritten()
	}
	check("points written to the second server", written, (drainFrames-acked)*100)
}
