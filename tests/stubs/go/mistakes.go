package main

import (
	"context"

	"google.golang.org/grpc/codes"

	commonv1 "oxtsdb.dev/stubs/gen/oxtsdb/common/v1"
	datav1 "oxtsdb.dev/stubs/gen/oxtsdb/data/v1"
)

func mistakes(ctx context.Context, client datav1.DataServiceClient) {
	repeatedDeclaration(ctx, client)
	for what, deltas := range map[string][]int64{
		"offsets as deltas":             {1000, 2000, 3000},
		"absolute timestamps as deltas": timestamps(1, 3),
	} {
		message := withDeltas(columns("go.mistake", 0, 4, true), deltas)
		result := must[*datav1.WriteColumnsResponse](what)(
			client.WriteColumns(ctx, &datav1.WriteColumnsRequest{Columns: message, Options: milliseconds}))
		notStored(what, result, 4, commonv1.ErrorReason_ERROR_REASON_INVALID_TIMESTAMP)
	}
	seconds := timeSeries("go.mistake", "a", 2)
	seconds.Timestamps = []int64{startMs / 1000, startMs/1000 + 1}
	seconds.Values = []float64{1, 2}
	request := &datav1.WriteRequest{Series: []*datav1.TimeSeries{seconds}, Options: milliseconds}
	result := must[*datav1.WriteResponse]("seconds")(client.Write(ctx, request))
	notStored("seconds as milliseconds", result, 2, commonv1.ErrorReason_ERROR_REASON_IMPLAUSIBLE_TIMESTAMP)
	request.Options = nil
	_, err := client.Write(ctx, request)
	rejected("no unit", err, codes.InvalidArgument, "INVALID_FIELD")
}

func repeatedDeclaration(ctx context.Context, client datav1.DataServiceClient) {
	stream := openStream(ctx, client)
	stream.frame(columns("go.declared", 7, 1, true))
	acked := stream.response().GetAck()
	check("the frame before the mistake", acked.GetSequence(), uint64(1))
	check("its point", acked.GetWritten(), uint64(1))
	stream.frame(columns("go.other", 7, 1, true))
	_, err := stream.Recv()
	found := rejected("symbols declared from 0 again", err, codes.InvalidArgument, "DECLARATION_OUT_OF_SEQUENCE")
	check("the expected number", found.info.GetMetadata()["expected"], "3")
}

// A response to a write of any form.
type writeResponse interface {
	GetWritten() uint64
	GetFailed() uint64
	GetFailures() *datav1.Failures
}

func notStored(what string, result writeResponse, count uint64, reason commonv1.ErrorReason) {
	check(what+": nothing is stored", result.GetWritten(), uint64(0))
	check(what+": all points fail", result.GetFailed(), count)
	check(what+": from the first", result.GetFailures().GetPermanent().GetFirst(), []uint64{0})
	check(what+": to the last", result.GetFailures().GetPermanent().GetCount(), []uint64{count})
	check(what+": why", result.GetFailures().GetErrors()[0].GetError().GetReason(), reason)
}
