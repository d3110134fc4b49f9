"""A node of test/dataplane on the C core of gRPC (Debian's python3-grpcio).

It dials the target of SLUICE_DATAPLANE_TARGET with the xDS bootstrap of the
environment. It writes a hello, then reads commands and writes a reply for each,
in any order: one JSON object a line (test/dataplane/child.go). It ends with its
input.
"""

import json
import os
import queue
import signal
import sys
import threading

import grpc


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    replies = queue.SimpleQueue()
    writer = threading.Thread(target=write, args=(replies,))
    writer.start()
    channel = grpc.insecure_channel(
        os.environ["SLUICE_DATAPLANE_TARGET"],
        options=[("grpc.enable_retries", 0)],
    )
    client = Client(channel, replies)
    replies.put({})  # the hello: this client has no CSDS
    for line in sys.stdin:
        client.run(json.loads(line))
    channel.close()  # cancels what is under way
    replies.put(None)
    writer.join()


def write(replies):
    """Writes until None comes, and flushes when no more is waiting."""
    out = sys.stdout
    while (r := replies.get()) is not None:
        out.write(json.dumps(r, separators=(",", ":")) + "\n")
        if replies.empty():
            out.flush()
    out.flush()


class Client:
    """One channel. Its commands overlap; gRPC's threads answer them."""

    def __init__(self, channel, replies):
        self.channel = channel
        self.replies = replies
        self.calls = {}  # by path
        self.lock = threading.Lock()
        self.ready = False
        self.waiting = []  # ids of commands that wait for READY
        # Without it the stream of xDS stalls after an outage under fail-fast
        # calls, and the channel goes idle.
        channel.subscribe(self.moved, try_to_connect=True)

    def moved(self, state):
        with self.lock:
            self.ready = state is grpc.ChannelConnectivity.READY
            done, self.waiting = (self.waiting, []) if self.ready else ([], self.waiting)
        for i in done:
            self.replies.put({"id": i})

    def run(self, c):
        if c["op"] == "ready":
            with self.lock:
                if not self.ready:
                    self.waiting.append(c["id"])  # the parent gives up when it must
                    return
            self.replies.put({"id": c["id"]})
        elif c["op"] == "send":
            self.send(c)
        else:
            code = grpc.StatusCode.UNIMPLEMENTED.value[0]
            self.replies.put({"id": c["id"], "code": code, "error": "unknown op " + c["op"]})

    def send(self, c):
        path = c.get("path") or "/sluice.Echo/Say"
        call = self.calls.get(path)
        if call is None:
            call = self.calls[path] = self.channel.unary_unary(path)
        timeout = c.get("timeout_us", 0)
        future = call.future(
            b"",  # google.protobuf.Empty
            timeout=timeout / 1e6 if timeout else None,
            metadata=tuple(c.get("header", {}).items()),
        )
        future.add_done_callback(lambda f: self.answered(c["id"], f))

    def answered(self, i, future):
        code = future.code()
        if code is grpc.StatusCode.OK:
            self.replies.put({"id": i, "label": label(future.result())})
        else:
            self.replies.put({"id": i, "code": code.value[0], "error": future.details() or ""})


def label(message):
    """The one field of a google.protobuf.StringValue, below 128 bytes."""
    return message[2 : 2 + message[1]].decode() if message else ""


if __name__ == "__main__":
    main()
