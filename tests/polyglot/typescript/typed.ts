import { type Client, connect, type Reason, RunFold, TurnwrightError } from "@turnwright/client";
import { type Run, RunSchema } from "@turnwright/client/protos/turnwright/types/v1/run_pb.js";
import { create } from "@bufbuild/protobuf";

const client: Client = connect("127.0.0.1:7440", "token");
const fold = new RunFold(create(RunSchema, { run: "r" }));
const run: Run | undefined = fold.run;
export async function end(project: string): Promise<Reason | undefined> {
  try {
    const task = await client.act({ project, prompt: "Go.", settings: { yolo: true } });
    await client.runToEnd(task, { onProposal: async ({ tool }) => tool === "sh" || "Use sh." });
    // @ts-expect-error: a run has no such field
    await client.runs.getRun({ project, runn: "r" });
  } catch (error) {
    if (!(error instanceof TurnwrightError)) throw error;
    // @ts-expect-error: no error has this name
    if (error.reason === "RUN_NOT_FUOND") return undefined;
    if (error.reason === "RUN_NOT_FOUND") return error.reason;
  }
  return run ? "RUN_EXISTS" : undefined;
}
