"""A proxyless xDS server of test/dataplane on the C core of gRPC.

It listens at SLUICE_DATAPLANE_LISTEN once the Listener of that address has come,
and answers every method with SLUICE_DATAPLANE_LABEL. It ends with its input.
"""

import os
import signal
import sys
from concurrent import futures

import grpc


class Echo(grpc.GenericRpcHandler):
    """Answers any unary call with a google.protobuf.StringValue."""

    def __init__(self, label):
        answer = b"\x0a" + bytes([len(label)]) + label
        self.handler = grpc.unary_unary_rpc_method_handler(lambda request, context: answer)

    def service(self, details):
        return self.handler


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=8),
        handlers=[Echo(os.environ["SLUICE_DATAPLANE_LABEL"].encode())],
        xds=True,
    )
    credentials = grpc.xds_server_credentials(grpc.insecure_server_credentials())
    server.add_secure_port(os.environ["SLUICE_DATAPLANE_LISTEN"], credentials)
    server.start()
    sys.stdin.read()
    server.stop(grace=None).wait()


if __name__ == "__main__":
    main()
