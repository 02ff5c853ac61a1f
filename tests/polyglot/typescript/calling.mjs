// Gives one task, answers what it asks, refuses what it proposes, and prints how calls fail.
import { connect, TurnwrightError } from "@turnwright/client";
import { WebhookService } from "@turnwright/client/protos/turnwright/webhooks/v1/webhook_service_pb.js";

const [address, token, options, project, model] = process.argv.slice(2);
const client = connect(address, token, JSON.parse(options));
const print = (words) => console.log(JSON.stringify(words));
const failed = (call) => call.then(() => "nothing", (error) => {
  if (!(error instanceof TurnwrightError)) throw error;
  return [error.reason, error.values, error.code];
});

const task = await client.act({ project, prompt: "Ask me.", settings: { model } });
const answers = { question: "blue", files: "Not this file." };
const { status } = await client.runToEnd(task, { onProposal: ({ effect }) => answers[effect.case] });
print([task.run.run, status]);
print(await failed(client.runs.getRun({ project, run: "no-such" })));
const watch = client.watchRun({ project, run: "no-such" });
print(await failed(watch.next()));
print((await client.of(WebhookService).listWebhooks({ project })).webhooks.length);
print(await failed(connect(address, "nobody's", JSON.parse(options)).runs.getRun({ project, run: "r" })));
const [first] = (await client.runs.getRun({ project, run: task.run.run })).loops;
print((await client.runToEnd({ ...task, loop: first, cursor: undefined })).status);
client.close();
