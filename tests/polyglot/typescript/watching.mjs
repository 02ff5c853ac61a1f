// Prints each event of a run as it comes, and at its end what they fold to.
import { connect, RunFold } from "@turnwright/client";

const [address, token, options, wanted] = process.argv.slice(2);
const request = JSON.parse(wanted, (key, value) => (key === "seq" ? BigInt(value) : value)); // JSON has no integers of 64 bits.
const client = connect(address, token, JSON.parse(options));
const fold = new RunFold();
for await (const message of client.watchRun(request, { retriesMax: 1000 })) {
  fold.apply(message);
  const { cursor, event } = message;
  const told = { kind: event.case, at: `${cursor?.epoch}:${cursor?.seq}`, text: event.case === "notice" ? event.value.text : "" };
  console.log(JSON.stringify(told));
}
const entries = Object.fromEntries([...fold.entries.values()].map(({ path, status, body }) => [path, [status, body]]));
const { epoch, seq } = fold.cursor ?? {};
console.log(JSON.stringify({ kind: "end", text: "", status: fold.run?.status, state: fold.state, entries, cursor: fold.cursor && [String(epoch), String(seq)] }));
client.close();
