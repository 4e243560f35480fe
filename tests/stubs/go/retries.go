package main

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	uidv1 "oxtsdb.dev/stubs/gen/oxtsdb/uid/v1"
)

type failsOnce struct {
	uidv1.UnimplementedUidServiceServer
	calls int
}

func (s *failsOnce) GetUidLayout(context.Context, *uidv1.GetUidLayoutRequest) (*uidv1.GetUidLayoutResponse, error) {
	s.calls++
	if s.calls == 1 {
		return nil, status.Error(codes.Unavailable, "the first call")
	}
	return &uidv1.GetUidLayoutResponse{}, nil
}

// The service config is in effect: a call that fails with UNAVAILABLE once is retried.
func retries(ctx context.Context) {
	listener := must[net.Listener]("listen")(net.Listen("tcp", "127.0.0.1:0"))
	service, server := &failsOnce{}, grpc.NewServer()
	uidv1.RegisterUidServiceServer(server, service)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	client := uidv1.NewUidServiceClient(connect(listener.Addr().String()))
	must[*uidv1.GetUidLayoutResponse]("a retried call")(client.GetUidLayout(ctx, &uidv1.GetUidLayoutRequest{}))
	check("calls until one succeeds", service.calls, 2)
}
