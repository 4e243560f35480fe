// Checks the contract with the stubs that protoc-gen-go generates; tests/stubs/README.md lists the checks.
//
//	check DATA_ADDRESS UID_ADDRESS SECOND_DATA_ADDRESS FIRST_SERVER_PID
//
// Exits with 1 at the first result that is not as the contract says.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	commonv1 "oxtsdb.dev/stubs/gen/oxtsdb/common/v1"
	datav1 "oxtsdb.dev/stubs/gen/oxtsdb/data/v1"
	uidv1 "oxtsdb.dev/stubs/gen/oxtsdb/uid/v1"
)

func health(ctx context.Context, connection *grpc.ClientConn, service string) {
	result := must[*healthv1.HealthCheckResponse]("health")(
		healthv1.NewHealthClient(connection).Check(ctx, &healthv1.HealthCheckRequest{Service: service}))
	check("health of "+service, result.GetStatus(), healthv1.HealthCheckResponse_SERVING)
}

func names(ctx context.Context, client uidv1.UidServiceClient) {
	names := []*uidv1.UidName{
		{Kind: commonv1.UidKind_UID_KIND_METRIC, Name: "go.metric"},
		{Kind: commonv1.UidKind_UID_KIND_TAG_KEY, Name: "host"},
		{Kind: commonv1.UidKind_UID_KIND_TAG_VALUE, Name: "pümpernickel"},
	}
	request := &uidv1.GetOrCreateUidsRequest{Names: names}
	assigned := must[*uidv1.GetOrCreateUidsResponse]("assign")(client.GetOrCreateUids(ctx, request))
	again := must[*uidv1.GetOrCreateUidsResponse]("assign again")(client.GetOrCreateUids(ctx, request))
	var values []*uidv1.UidValue
	for number, result := range assigned.GetResults() {
		check("a new name is created", result.GetCreated(), true)
		check("the first UID", result.GetUid(), []byte{0, 0, 1})
		check("a known name is not created", again.GetResults()[number].GetCreated(), false)
		values = append(values, &uidv1.UidValue{Kind: names[number].GetKind(), Uid: result.GetUid()})
	}
	found := must[*uidv1.LookupNamesResponse]("look names up")(
		client.LookupNames(ctx, &uidv1.LookupNamesRequest{Uids: values}))
	for number, result := range found.GetResults() {
		check("the name of a UID", result.GetName(), names[number].GetName())
	}
	unknown := &uidv1.UidName{Kind: commonv1.UidKind_UID_KIND_METRIC, Name: "unknown"}
	looked := must[*uidv1.LookupUidsResponse]("look UIDs up")(
		client.LookupUids(ctx, &uidv1.LookupUidsRequest{Names: []*uidv1.UidName{names[0], unknown}}))
	check("a known name", looked.GetResults()[0].GetUid(), []byte{0, 0, 1})
	check("an unknown name", looked.GetResults()[1].GetError().GetReason(),
		commonv1.ErrorReason_ERROR_REASON_NAME_NOT_FOUND)
	check("its code", codes.Code(looked.GetResults()[1].GetError().GetCode()), codes.NotFound)
}

func main() {
	if len(os.Args) != 5 {
		fail("usage: check DATA_ADDRESS UID_ADDRESS SECOND_DATA_ADDRESS FIRST_SERVER_PID")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	data, uid, second := connect(os.Args[1]), connect(os.Args[2]), connect(os.Args[3])
	firstServer := must[int]("process id")(strconv.Atoi(os.Args[4]))
	health(ctx, data, "oxtsdb.data.v1.DataService")
	health(ctx, uid, "oxtsdb.uid.v1.UidService")
	names(ctx, uidv1.NewUidServiceClient(uid))
	client := datav1.NewDataServiceClient(data)
	write(ctx, client)
	writeColumns(ctx, client)
	writeStream(ctx, client)
	mistakes(ctx, client)
	queries(ctx, client)
	lastPoints(ctx, client)
	richErrors(ctx, client)
	surfaces(ctx, data, uid)
	retries(ctx)
	drain(ctx, client, datav1.NewDataServiceClient(second), firstServer)
	fmt.Printf("stubs in Go: %d checks passed\n", checks)
}
