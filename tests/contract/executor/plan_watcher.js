// Prints what a watch of a run is told of plans, a line of JSON each: node plan_watcher.js ADDRESS PROJECT RUN FORM
const grpc = require("@grpc/grpc-js");
const { loadSync } = require("@grpc/proto-loader");

const file = "turnwright/executor/v1/executor_service.proto";
const options = { includeDirs: ["protos"], keepCase: true, enums: String, longs: String, defaults: true, oneofs: true };
const { ExecutorService } = grpc.loadPackageDefinition(loadSync(file, options)).turnwright.executor.v1;
const [address, project, run, plans] = process.argv.slice(2);
const client = new ExecutorService(address, grpc.credentials.createInsecure());
const metadata = new grpc.Metadata();
metadata.set("authorization", `Bearer ${process.env.TOKEN}`);

const named = (plan) => [plan.plan_id, plan.kind, plan.body, plan.items.map((item) => item.content)];
const listed = (list) => list.items.map((item) => [item.content, item.status]);

function told(event) {
  switch (event.event) {
    case "snapshot":
      return event.snapshot.last && [event.snapshot.plans.map(named), event.snapshot.legacy_plan && listed(event.snapshot.legacy_plan)];
    case "plan_updated":
      return named(event.plan_updated);
    case "plan_removed":
      return event.plan_removed;
    case "legacy_plan":
      return listed(event.legacy_plan);
  }
}

async function main() {
  for await (const event of client.WatchRun({ project, run, plans }, metadata)) {
    const line = told(event);
    if (line) console.log(JSON.stringify([event.event, line]));
  }
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
