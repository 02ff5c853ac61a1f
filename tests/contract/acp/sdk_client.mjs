// A client made with the official TypeScript SDK, which validates each message: sdk_client.mjs ENTRY CAPABILITIES CWD COMMAND...
// Prints each update that it was given, then `result` with what the requests were answered with, a JSON line each.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";

const [entry, capabilities, cwd, command, ...args] = process.argv.slice(2);
const acp = await import(entry);
const agent = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const say = (value) => process.stdout.write(JSON.stringify(value) + "\n");

let lines = 0;
const counted = new TransformStream({
  transform(chunk, controller) {
    lines += Buffer.from(chunk).toString("latin1").split('"method":"session/update"').length - 1;
    controller.enqueue(chunk);
  },
});
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout).pipeThrough(counted));
let updates = 0;
let last = "";
const app = acp
  .client({ name: "tests" })
  .onRequest("session/request_permission", ({ params }) => ({
    outcome: { outcome: "selected", optionId: params.options.find((one) => one.kind === "allow_once").optionId },
  }))
  .onNotification("session/update", ({ params }) => {
    updates += 1;
    last = params.update.sessionUpdate;
    say(params.update);
  });
await app.connectWith(stream, async (context) => {
  const found = {};
  found.initialize = await context.request("initialize", {
    protocolVersion: 1,
    clientCapabilities: JSON.parse(capabilities),
  });
  found.new = await context.request("session/new", { cwd, mcpServers: [] });
  const session = { sessionId: found.new.sessionId };
  const prompt = [{ type: "text", text: "Do it." }];
  found.prompt = await context.request("session/prompt", { ...session, prompt });
  found.mode = await context.request("session/set_mode", { ...session, modeId: "ask" });
  found.second = await context.request("session/prompt", { ...session, prompt });
  found.list = await context.request("session/list", {});
  found.close = await context.request("session/close", session);
  found.load = await context.request("session/load", { ...session, cwd, mcpServers: [] });
  // What follows the answer to a load comes last.
  while (last !== "available_commands_update") await new Promise((done) => setTimeout(done, 10));
  say({ result: found, updates, lines });
});
agent.stdin.end();
agent.on("exit", (code) => process.exit(code ?? 1));
