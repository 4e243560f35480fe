package dev.oxtsdb.stubs;

import static dev.oxtsdb.stubs.Support.check;

import com.google.protobuf.ByteString;
import dev.oxtsdb.proto.common.v1.ErrorReason;
import dev.oxtsdb.proto.common.v1.UidKind;
import dev.oxtsdb.proto.data.v1.DataServiceGrpc;
import dev.oxtsdb.proto.data.v1.DataServiceGrpc.DataServiceBlockingV2Stub;
import dev.oxtsdb.proto.uid.v1.GetOrCreateUidsRequest;
import dev.oxtsdb.proto.uid.v1.GetOrCreateUidsResponse;
import dev.oxtsdb.proto.uid.v1.LookupNamesRequest;
import dev.oxtsdb.proto.uid.v1.LookupNamesResponse;
import dev.oxtsdb.proto.uid.v1.LookupUidsRequest;
import dev.oxtsdb.proto.uid.v1.LookupUidsResponse;
import dev.oxtsdb.proto.uid.v1.UidName;
import dev.oxtsdb.proto.uid.v1.UidServiceGrpc;
import dev.oxtsdb.proto.uid.v1.UidServiceGrpc.UidServiceBlockingV2Stub;
import dev.oxtsdb.proto.uid.v1.UidValue;
import io.grpc.ManagedChannel;
import io.grpc.Status.Code;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * Checks the contract with the stubs of grpc-java; tests/stubs/README.md lists the checks.
 *
 * <p>Arguments: DATA_ADDRESS UID_ADDRESS SECOND_DATA_ADDRESS FIRST_SERVER_PID. The property oxtsdb.service_config names
 * the file. Fails at the first result that is not as the contract says.
 */
public final class Check {
  private Check() {}

  private static UidName name(UidKind kind, String name) {
    return UidName.newBuilder().setKind(kind).setName(name).build();
  }

  private static void names(UidServiceBlockingV2Stub stub) throws Exception {
    List<UidName> names =
        List.of(
            name(UidKind.UID_KIND_METRIC, "java.metric"),
            name(UidKind.UID_KIND_TAG_KEY, "host"),
            name(UidKind.UID_KIND_TAG_VALUE, "pümpernickel"));
    GetOrCreateUidsRequest request = GetOrCreateUidsRequest.newBuilder().addAllNames(names).build();
    GetOrCreateUidsResponse assigned = stub.getOrCreateUids(request);
    GetOrCreateUidsResponse again = stub.getOrCreateUids(request);
    LookupNamesRequest.Builder lookup = LookupNamesRequest.newBuilder();
    for (int number = 0; number < names.size(); number++) {
      ByteString uid = assigned.getResults(number).getUid();
      check("a new name is created", assigned.getResults(number).getCreated(), true);
      check("the first UID", uid, ByteString.copyFrom(new byte[] {0, 0, 1}));
      check("a known name is not created", again.getResults(number).getCreated(), false);
      lookup.addUids(UidValue.newBuilder().setKind(names.get(number).getKind()).setUid(uid));
    }
    LookupNamesResponse found = stub.lookupNames(lookup.build());
    for (int number = 0; number < names.size(); number++) {
      check("the name of a UID", found.getResults(number).getName(), names.get(number).getName());
    }
    LookupUidsResponse looked =
        stub.lookupUids(
            LookupUidsRequest.newBuilder()
                .addNames(names.get(0))
                .addNames(name(UidKind.UID_KIND_METRIC, "unknown"))
                .build());
    check("a known name", looked.getResults(0).getUid(), assigned.getResults(0).getUid());
    check(
        "an unknown name",
        looked.getResults(1).getError().getReason(),
        ErrorReason.ERROR_REASON_NAME_NOT_FOUND);
    check("its code", looked.getResults(1).getError().getCode(), Code.NOT_FOUND.value());
  }

  public static void main(String[] arguments) throws Exception {
    Path serviceConfig = Path.of(System.getProperty("oxtsdb.service_config"));
    ManagedChannel data = Support.connect(arguments[0], serviceConfig);
    ManagedChannel uid = Support.connect(arguments[1], serviceConfig);
    ManagedChannel second = Support.connect(arguments[2], serviceConfig);
    ProcessHandle firstServer = ProcessHandle.of(Long.parseLong(arguments[3])).orElseThrow();
    names(UidServiceGrpc.newBlockingV2Stub(uid));
    DataServiceBlockingV2Stub stub =
        DataServiceGrpc.newBlockingV2Stub(data).withDeadlineAfter(60, TimeUnit.SECONDS);
    Writes.write(stub);
    Writes.writeColumns(stub);
    Writes.writeStream(stub);
    Mistakes.all(stub);
    Reads.queries(stub);
    Reads.lastPoints(stub);
    Reads.errors(stub);
    Retries.run(serviceConfig);
    Drain.run(stub, DataServiceGrpc.newBlockingV2Stub(second).withDeadlineAfter(60, TimeUnit.SECONDS), firstServer);
    for (ManagedChannel channel : List.of(data, uid, second)) {
      channel.shutdownNow();
    }
    System.out.println("stubs in Java: " + Support.checks + " checks passed");
  }
}
