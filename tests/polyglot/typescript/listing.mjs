// Prints the runs of a project after each message that changed them.
import { connect, RunsFold } from "@turnwright/client";

const [address, token, options, project] = process.argv.slice(2);
const fold = new RunsFold();
for await (const message of connect(address, token, JSON.parse(options)).watchRuns({ project })) {
  fold.apply(message);
  if (fold.isLoaded && message.event.case !== "heartbeat") console.log(JSON.stringify([...fold.runs.keys()].sort()));
}
