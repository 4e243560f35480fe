package main

import (
	"fmt"
	"os"
	"reflect"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	commonv1 "oxtsdb.dev/stubs/gen/oxtsdb/common/v1"
)

const hourMs = 3_600_000

// QueryLast looks back from the server's clock, so all points are recent; rows are hours.
var startMs = (time.Now().UnixMilli()/hourMs - 2) * hourMs

var checks int

func check(what string, actual, expected any) {
	if !reflect.DeepEqual(actual, expected) {
		fail("%s: expected %#v, got %#v", what, expected, actual)
	}
	checks++
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}

// The value of a call that must not fail.
func must[T any](what string) func(T, error) T {
	return func(value T, err error) T {
		if err != nil {
			fail("%s: %v", what, err)
		}
		return value
	}
}

func connect(address string) *grpc.ClientConn {
	config := must[[]byte]("service config")(os.ReadFile("../../../proto/service_config.json"))
	return must[*grpc.ClientConn](address)(grpc.NewClient(address,
		grpc.WithDefaultServiceConfig(string(config)),
		grpc.WithTransportCredentials(insecure.NewCredentials())))
}

func seriesName(metric, host string) *commonv1.SeriesName {
	return &commonv1.SeriesName{Metric: metric, Tags: []*commonv1.Tag{{Key: "host", Value: host}}}
}

// What a status carries.
type details struct {
	info       *errdetails.ErrorInfo
	badRequest *errdetails.BadRequest
	retry      *errdetails.RetryInfo
}

func rejected(what string, err error, code codes.Code, reason string) details {
	failed := status.Convert(err)
	check(what+": code", failed.Code(), code)
	var found details
	for _, detail := range failed.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			found.info = detail
		case *errdetails.BadRequest:
			found.badRequest = detail
		case *errdetails.RetryInfo:
			found.retry = detail
		}
	}
	check(what+": domain", found.info.GetDomain(), "oxtsdb.dev")
	check(what+": reason", found.info.GetReason(), reason)
	return found
}
