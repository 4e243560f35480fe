"""Checks the contract with the stubs that grpcio-tools generates; tests/stubs/README.md lists the checks.

    check.py DATA_ADDRESS UID_ADDRESS SECOND_DATA_ADDRESS FIRST_SERVER_PID

Exits with 1 at the first result that is not as the contract says.
"""

import sys

import support
from support import TIMEOUT, check, connect
import grpc
from drain import drain
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from oxtsdb.common.v1 import common_pb2 as common
from oxtsdb.data.v1 import data_service_pb2_grpc
from oxtsdb.uid.v1 import uid_service_pb2 as uid
from oxtsdb.uid.v1 import uid_service_pb2_grpc
from reads import errors, last_points, queries
from retries import retries
from surfaces import surfaces
from writes import mistakes, write, write_columns, write_stream


def health_and_reflection(channel, service):
    stub = health_pb2_grpc.HealthStub(channel)
    result = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT)
    check(f"health of {service}", result.status, health_pb2.HealthCheckResponse.SERVING)
    listed = ProtoReflectionDescriptorDatabase(channel).get_services()
    check(f"reflection lists {service}", service in listed, True)


def names(stub):
    names = [
        uid.UidName(kind=common.UID_KIND_METRIC, name="python.metric"),
        uid.UidName(kind=common.UID_KIND_TAG_KEY, name="host"),
        uid.UidName(kind=common.UID_KIND_TAG_VALUE, name="pümpernickel"),
    ]
    request = uid.GetOrCreateUidsRequest(names=names)
    assigned = stub.GetOrCreateUids(request, timeout=TIMEOUT).results
    check("new names are created", [result.created for result in assigned], [True] * 3)
    check("first UIDs", [result.uid for result in assigned], [b"\0\0\1"] * 3)
    again = stub.GetOrCreateUids(request, timeout=TIMEOUT).results
    check("known names are not", [result.created for result in again], [False] * 3)

    values = [uid.UidValue(kind=name.kind, uid=result.uid) for name, result in zip(names, assigned)]
    found = stub.LookupNames(uid.LookupNamesRequest(uids=values), timeout=TIMEOUT).results
    check("names of the UIDs", [result.name for result in found], [name.name for name in names])
    unknown = uid.UidName(kind=common.UID_KIND_METRIC, name="unknown")
    found = stub.LookupUids(uid.LookupUidsRequest(names=[names[0], unknown]), timeout=TIMEOUT).results
    check("a known name", found[0].uid, b"\0\0\1")
    check("an unknown name", found[1].error.reason, common.ERROR_REASON_NAME_NOT_FOUND)
    check("its code", found[1].error.code, grpc.StatusCode.NOT_FOUND.value[0])


def main(data_address, uid_address, second_address, first_server):
    with connect(data_address) as channel, connect(uid_address) as uid_channel, connect(second_address) as second:
        health_and_reflection(channel, "oxtsdb.data.v1.DataService")
        health_and_reflection(uid_channel, "oxtsdb.uid.v1.UidService")
        names(uid_service_pb2_grpc.UidServiceStub(uid_channel))
        stub = data_service_pb2_grpc.DataServiceStub(channel)
        write(stub)
        write_columns(stub)
        write_stream(stub)
        mistakes(stub)
        queries(stub)
        last_points(stub)
        errors(stub)
        surfaces(channel, uid_channel)
        retries()
        drain(stub, data_service_pb2_grpc.DataServiceStub(second), int(first_server))
    print(f"stubs in Python: {support.CHECKS} checks passed")


if __name__ == "__main__":
    main(*sys.argv[1:])
