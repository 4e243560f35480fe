"""The service config is in effect: a call that fails with UNAVAILABLE once is retried."""

from concurrent import futures

import grpc
from support import TIMEOUT, check, connect
from oxtsdb.uid.v1 import uid_service_pb2 as uid
from oxtsdb.uid.v1 import uid_service_pb2_grpc


class FailsOnce(uid_service_pb2_grpc.UidServiceServicer):
    calls = 0

    def GetUidLayout(self, request, context):
        self.calls += 1
        if self.calls == 1:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the first call")
        return uid.GetUidLayoutResponse()


def retries():
    service = FailsOnce()
    server = grpc.server(futures.ThreadPoolExecutor(1))
    uid_service_pb2_grpc.add_UidServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with connect(f"127.0.0.1:{port}") as channel:
        uid_service_pb2_grpc.UidServiceStub(channel).GetUidLayout(uid.GetUidLayoutRequest(), timeout=TIMEOUT)
    check("calls until one succeeds", service.calls, 2)
    server.stop(None)
