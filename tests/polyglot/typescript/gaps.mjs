// A server that breaks off within a snapshot, leaves an event out, ends a stream and has another history then: what its client asks for and gives.
import { createServer } from "node:http";
import { Code, ConnectError } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { connect } from "@turnwright/client";
import { ErrorInfoSchema } from "@turnwright/client/protos/google/rpc/error_details_pb.js";
import { ExecutorService } from "@turnwright/client/protos/turnwright/executor/v1/executor_service_pb.js";

const message = (seq, kind, value) => ({ cursor: { epoch: "e", seq: BigInt(seq) }, event: { case: kind, value } });
const notice = (seq) => message(seq, "notice", { text: "told" });
const snapshot = (seq, part, last) => message(seq, "snapshot", { part, last, run: { status: 102 } });
const info = { desc: ErrorInfoSchema, value: { reason: "CURSOR_FOREIGN", domain: "turnwright" } };
const streams = [
  [snapshot(1, 0, false)],
  [snapshot(2, 0, false), snapshot(2, 1, true), notice(3), notice(5)],
  [snapshot(5, 0, true), notice(6)],
  [new ConnectError("Another history.", Code.OutOfRange, undefined, [info])],
  [snapshot(9, 0, true), notice(10), message(11, "runState", { run: { status: 200 } })],
];
const asked = [], seen = [];
async function* watchRun({ after }) {
  asked.push(after ? Number(after.seq) : null);
  for (const each of streams.shift()) {
    if (each instanceof Error) throw each;
    yield each;
  }
}
const server = createServer(connectNodeAdapter({ routes: (router) => router.service(ExecutorService, { watchRun }) }));
server.listen(0, "127.0.0.1", async () => {
  const client = connect(`127.0.0.1:${server.address().port}`, "token", { protocol: "connect" });
  for await (const { cursor, event } of client.watchRun({ project: "p", run: "r" })) seen.push(`${event.case} ${cursor.seq}`);
  console.log(JSON.stringify({ asked, seen }));
  client.close();
  server.close();
});
