/** One turn: what was asked, what the model said, what its commands did, and who decided. */
import { useState } from "preact/hooks";
import type { CommandDecision, CommandRecord } from "@turnwright/client/protos/turnwright/types/v1/command_record_pb.js";
import { DecisionKind } from "@turnwright/client/protos/turnwright/types/v1/command_record_pb.js";
import type { Entry } from "@turnwright/client/protos/turnwright/types/v1/entry_pb.js";
import { words } from "./door.js";
import { Diff } from "./diff_view.js";
import { go, to } from "./routes.js";
import type { RunModel } from "./run_model.js";
import { Legend, SpansBar, spanWords } from "./spans_view.js";
import { Line, Long, Problem, Tail } from "./text.js";
import { count, money, plural, share, statusTone } from "./words.js";

const ENTRIES = 60;
const FILES = 20;
const BODY_BYTES_MAX = 2_000_000;

export function TurnView({ model, number }: { model: RunModel; number: number }) {
  const [shown, setShown] = useState(ENTRIES);
  const turn = model.turns.get(number);
  const entries = model.fold.of(number);
  const spans = model.spans(number);
  const usage = turn?.result?.usage;
  const partial = model.fold.partial?.turn === number ? model.fold.partial : undefined;
  return (
    <article class="turn" aria-labelledby="turn-title">
      <h2 id="turn-title">Turn {number}</h2>
      {spans && <p><SpansBar spans={spans} longest={spans.wait + spans.stream + spans.commands} /> {spanWords(spans)}</p>}
      <Legend />
      {turn && (
        <dl class="figures">
          <dt>Model</dt><dd><Line text={turn.request?.vendorModel || turn.request?.model || "–"} /></dd>
          {usage && <><dt>Tokens</dt><dd>{count(Number(usage.promptTokens))} in, {count(Number(usage.completionTokens))} out</dd></>}
          {usage && <><dt>Cached</dt><dd>{share(Number(usage.cachedTokens), Number(usage.promptTokens))}</dd></>}
          {usage?.costUsd !== undefined && <><dt>Cost</dt><dd>{money(usage.costUsd)}</dd></>}
          {turn.result && <><dt>Verdict</dt><dd class={statusTone(turn.result.status)}>{turn.result.status} <Line text={turn.result.reason || turn.result.error || ""} /></dd></>}
        </dl>
      )}
      <Actions model={model} number={number} isEnded={turn?.result !== undefined} />
      {entries.slice(0, shown).map((entry) => <EntryView key={entry.path} model={model} entry={entry} />)}
      {entries.length > shown && <button type="button" onClick={() => setShown(shown + ENTRIES)}>Show more of {plural(entries.length, "entry").replace("entrys", "entries")}</button>}
      {partial && (
        <section aria-label="Reply that is being written" aria-busy="true">
          {partial.reasoning && <details><summary>Reasoning</summary><Tail text={partial.reasoning} /></details>}
          <Tail text={partial.content} />
          {partial.calls.slice(-10).map((call, index) => <div key={index}><h3><Line text={call.name} max={60} /></h3><Tail text={call.arguments} /></div>)}
        </section>
      )}
      {entries.length === 0 && !partial && <p class="dim">{model.progress || "Nothing yet."}</p>}
    </article>
  );
}

function Actions({ model, number, isEnded }: { model: RunModel; number: number; isEnded: boolean }) {
  const [problem, setProblem] = useState("");
  const attempt = (work: () => Promise<void>) => () => void work().catch((error: unknown) => setProblem(words(error)));
  const fork = attempt(async () => {
    const made = await model.door.runs.forkRun({ ...model.address, turn: number });
    go("run", model.project, made.run!.run);
  });
  const rewind = attempt(async () => {
    if (!confirm(`Show the run again as it was at the end of turn ${number}? Files stay as they are.`)) return;
    await model.door.submit(model.project, model.run, { case: "rewindToTurn", value: { $typeName: "turnwright.types.v1.RewindToTurn", turn: number } });
  });
  return (
    <div class="actions">
      <a href={to("run", model.project, model.run, "packet", number)}>Packet</a>
      {model.door.isLive && isEnded && <button type="button" onClick={fork}>Fork from here</button>}
      {model.door.isLive && isEnded && <button type="button" onClick={rewind}>Rewind to here</button>}
      {problem && <span role="alert" class="problem"><Line text={problem} max={400} /></span>}
    </div>
  );
}

function EntryView({ model, entry }: { model: RunModel; entry: Entry }) {
  switch (entry.scheme) {
    case "prompt":
    case "user":
      return <section class="task"><h3>Task</h3><Body model={model} entry={entry} /></section>;
    case "assistant":
      return entry.body.trim() ? <section class="reply"><h3>Reply</h3><Body model={model} entry={entry} /></section> : null;
    case "reasoning":
      return <details><summary>Reasoning</summary><Body model={model} entry={entry} /></details>;
    case "event":
      return <p class="event"><span aria-hidden="true">· </span><Line text={entry.body} max={400} /></p>;
    case "log":
      return <CommandView model={model} entry={entry} />;
    default:
      return <details><summary><Line text={entry.path} /></summary><Body model={model} entry={entry} /></details>;
  }
}

/** The body of an entry, whole on demand where events cut it. */
function Body({ model, entry }: { model: RunModel; entry: Entry }) {
  const [whole, setWhole] = useState<string>();
  const [problem, setProblem] = useState("");
  const isCut = Number(entry.bodySizeBytes) > entry.body.length * 4 || new TextEncoder().encode(entry.body).length < Number(entry.bodySizeBytes);
  const read = async () => {
    const { entry: found } = await model.door.entries.getEntry({ ...model.address, path: entry.path, bodyBytesMax: BODY_BYTES_MAX });
    setWhole(found!.body);
  };
  return (
    <>
      <Long text={whole ?? entry.body} />
      {isCut && whole === undefined && model.door.isLive && (
        <button type="button" onClick={() => void read().catch((error: unknown) => setProblem(words(error)))}>
          Read all {count(Number(entry.bodySizeBytes))} bytes
        </button>
      )}
      <Problem text={problem} />
    </>
  );
}

export function targetOf(entry: Entry): string {
  const record = entry.record;
  const attributes = record?.command?.attributes ?? [];
  const named = attributes.find(({ name }) => ["path", "target", "url", "command", "status"].includes(name));
  return named?.value ?? record?.command?.body.trim().split("\n")[0] ?? entry.path.split("/").at(-1) ?? "";
}

function CommandView({ model, entry }: { model: RunModel; entry: Entry }) {
  const record = entry.record;
  const settled = record?.stage.case === "settled" ? record.stage.value : undefined;
  const decision = settled?.decision ?? (record?.stage.case === "accepted" || record?.stage.case === "dispatched" ? record.stage.value.decision : undefined);
  const files = settled?.files ?? [];
  return (
    <section class="command">
      <h3>
        <span class="tool"><Line text={record?.tool || entry.path} max={60} /></span> <Line text={targetOf(entry)} max={160} />{" "}
        <span class={`status ${statusTone(entry.status)}`}>{entry.status} <Line text={entry.outcome.split(":")[0] ?? ""} max={40} /></span>
      </h3>
      {record && <Decided record={record} decision={decision} />}
      {record?.tool !== "update" && record?.command?.body.trim() && files.length === 0 && (
        <details open={record.tool === "sh" || record.tool === "env"}><summary>Command</summary><Long text={record.command.body} kind="code" /></details>
      )}
      {files.slice(0, FILES).map((file) => (
        <div class="file" key={file.path}>
          <h4><Line text={file.path} /> {file.baseHash === undefined ? "created" : file.hash === undefined ? "deleted" : "changed"}</h4>
          {file.patch !== undefined && <Diff patch={file.patch} />}
        </div>
      ))}
      {files.length > FILES && <p class="dim">{plural(files.length - FILES, "file")} more</p>}
      {entry.body.trim() && files.length === 0 && <Body model={model} entry={entry} />}
    </section>
  );
}

function Decided({ record, decision }: { record: CommandRecord; decision: CommandDecision | undefined }) {
  const rule = record.rule;
  if (!decision && !rule) return null;
  const how = decision ? { [DecisionKind.ACCEPTED]: "accepted", [DecisionKind.REJECTED]: "rejected", [DecisionKind.EXPIRED]: "expired", [DecisionKind.UNSPECIFIED]: "decided" }[decision.kind] : "";
  return (
    <p class="decided">
      {decision && <>{how}{decision.principal && <> by <Line text={decision.principal} /></>}{decision.editedPaths.length > 0 && ", edited"}</>}
      {decision?.comment && <>: <Line text={decision.comment} max={400} /></>}
      {!decision && rule && <>rule {rule.id ? `${rule.id}` : "of the deployment"}: {["", "allow", "ask", "deny"][rule.verdict]} <Line text={`${rule.tool} ${rule.target}`} /></>}
    </p>
  );
}

