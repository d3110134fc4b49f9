// A node of test/dataplane on grpc-js.
//
// It dials the target of SLUICE_DATAPLANE_TARGET with the xDS bootstrap of the
// environment. It writes a hello, then reads commands and writes a reply for
// each, in any order: one JSON object a line (test/dataplane/child.go). It ends
// with its input.
"use strict";

const readline = require("node:readline");
const grpc = require("@grpc/grpc-js");
require("@grpc/grpc-js-xds").register();

process.on("SIGINT", () => {}); // the parent decides

const client = new grpc.Client(
  process.env.SLUICE_DATAPLANE_TARGET,
  grpc.credentials.createInsecure(),
  { "grpc.enable_retries": 0, "grpc.client_idle_timeout_ms": 2 ** 31 - 1 },
);
client.getChannel().getConnectivityState(true); // the xDS stream starts here, not with the first request

// Replies of one turn of the event loop are written together.
let waiting = "";
function reply(r) {
  if (waiting === "") {
    setImmediate(() => {
      process.stdout.write(waiting);
      waiting = "";
    });
  }
  waiting += JSON.stringify(r) + "\n";
}

const empty = Buffer.alloc(0); // google.protobuf.Empty

// label reads the one field of a google.protobuf.StringValue, below 128 bytes.
const label = (m) => (m.length ? m.toString("utf8", 2, 2 + m[1]) : "");

function send(c) {
  const metadata = new grpc.Metadata();
  for (const [k, v] of Object.entries(c.header ?? {})) metadata.set(k, v);
  const options = c.timeout_us ? { deadline: Date.now() + c.timeout_us / 1000 } : {};
  client.makeUnaryRequest(c.path || "/sluice.Echo/Say", () => empty, label, empty, metadata, options, (err, said) => {
    if (err) reply({ id: c.id, code: err.code, error: err.details });
    else reply({ id: c.id, label: said });
  });
}

function run(c) {
  switch (c.op) {
    case "ready": // the parent gives up when it must
      client.waitForReady(Infinity, (err) => reply(err ? { id: c.id, code: grpc.status.UNAVAILABLE, error: err.message } : { id: c.id }));
      break;
    case "send":
      send(c);
      break;
    default:
      reply({ id: c.id, code: grpc.status.UNIMPLEMENTED, error: "unknown op " + c.op });
  }
}

reply({}); // the hello: this client has no CSDS
const lines = readline.createInterface({ input: process.stdin, crlfDelay: Infinity });
lines.on("line", (line) => run(JSON.parse(line)));
lines.on("close", () => process.exit(0));
