/** A run: its turns as a timeline, the one that was chosen, what waits for a person, and the chat. */
import { useMemo, useState } from "preact/hooks";
import { SessionState } from "@turnwright/client/protos/turnwright/types/v1/session_pb.js";
import { QueuedCommandKind } from "@turnwright/client/protos/turnwright/types/v1/session_command_pb.js";
import { userMessage } from "./commands.js";
import { words } from "./door.js";
import { PacketView } from "./packet_view.js";
import { PlansView } from "./plans_view.js";
import { Proposals } from "./proposal_view.js";
import { go, to } from "./routes.js";
import { Rows } from "./rows.js";
import type { Recorded } from "./rules_matrix.js";
import { RulesView } from "./rules_view.js";
import type { RunModel, Spans, Totals } from "./run_model.js";
import { StateMark } from "./runs_view.js";
import { SpansBar, spanWords } from "./spans_view.js";
import { useStore } from "./store.js";
import { Line, plain, Problem } from "./text.js";
import { targetOf, TurnView } from "./turn_view.js";
import { count, money, plural, share, statusTone } from "./words.js";

const SAYS = new Set(["think", "update", "ask_user"]);
const NOTHING: Spans = { wait: 0, stream: 0, commands: 0, people: 0 };
/** The bars compare turns up to this share of them, so that one slow turn does not flatten all others. */
const BARS_QUANTILE = 0.95;

function costWords({ cost, isCostKnown }: Totals) {
  if (!isCostKnown && cost === 0) return "at a cost that is not known";
  return <><b>{money(cost)}</b>{isCostKnown ? "" : " as far as it is known"}</>;
}

/** What a turn was about, in a line: its task, or else its commands. */
export function aboutTurn(model: RunModel, number: number): string {
  const entries = model.fold.of(number);
  const task = entries.find(({ scheme }) => scheme === "prompt");
  if (task) return `Task: ${task.body.slice(0, 200)}`;
  const commands = entries.filter(({ scheme, record }) => scheme === "log" && record && record.tool !== "think").slice(0, 8);
  if (commands.length) return commands.map((entry) => `${entry.record!.tool} ${targetOf(entry).slice(0, 60)}`).join(" · ");
  return entries.find(({ scheme }) => scheme === "assistant")?.body.slice(0, 200) ?? "";
}

/** What a run has done or wanted to do, in order; what only says or reads something of the run itself is left out. */
function recordedIn(model: RunModel): Recorded[] {
  return model.numbers().flatMap((number) => model.fold.of(number))
    .filter(({ scheme, record }) => scheme === "log" && record && !SAYS.has(record.tool))
    .map((entry) => ({ path: entry.path, tool: entry.record!.tool, target: targetOf(entry) }));
}

export function RunView({ model, view, part }: { model: RunModel; view: string; part: string }) {
  useStore(model);
  const { fold } = model;
  const totals = model.totals();
  const tabs: [string, string][] = [["", "Timeline"], ["packet", "Packets"], ["plan", "Plan"], ["rules", "Rules"]];
  return (
    <main id="main" class="run">
      <header class="run-head">
        <h1><Line text={model.run} /> <StateMark state={fold.state} /></h1>
        {fold.run?.loop && (
          <p>
            {fold.run.loop.endTime && <span class={`status ${statusTone(fold.run.loop.status)}`}>{fold.run.loop.status} <Line text={fold.run.loop.reason} max={200} /> </span>}
            <Line text={fold.run.loop.prompt} max={160} />
          </p>
        )}
        <p class="figures-line">
          <Line text={model.project} max={60} />, {plural(totals.turns, "turn")}, {count(totals.prompt)} tokens in, {count(totals.completion)} out,{" "}
          <b>{share(totals.cached, totals.prompt)}</b> cached, {costWords(totals)}
          {fold.run?.forkedFrom && <>, fork of <a href={to("run", model.project, fold.run.forkedFrom.run)}><Line text={fold.run.forkedFrom.run} max={60} /></a> after turn {fold.run.forkedFrom.turn}</>}
        </p>
        <nav aria-label="Views of this run" class="tabs">
          {tabs.map(([word, name]) => (
            <a key={word} href={word ? to("run", model.project, model.run, word) : to("run", model.project, model.run)} aria-current={view === word || (view === "turn" && !word) ? "page" : undefined}>{name}</a>
          ))}
          {model.door.isLive && <a href={to("forks", model.project)}>Forks</a>}
        </nav>
        <Problem text={model.problem} />
        {!model.isLoaded && !model.problem && <p class="dim">Reading…</p>}
      </header>
      {view === "packet" ? <PacketView model={model} part={part} />
        : view === "plan" ? <PlansView model={model} part={part} />
        : view === "rules" ? <RulesView door={model.door} project={model.project} run={model.run} recorded={recordedIn(model)} />
        : <Timeline model={model} chosen={Number(part) || 0} />}
    </main>
  );
}

function Timeline({ model, chosen }: { model: RunModel; chosen: number }) {
  const numbers = model.numbers();
  const number = chosen || numbers.at(-1) || 0;
  const spans = useMemo(() => new Map(numbers.map((each) => [each, model.spans(each) ?? NOTHING])), [numbers.length, model.turns.size, Math.floor(Date.now() / 1000)]);
  const work = [...spans.values()].map(({ wait, stream, commands }) => wait + stream + commands).sort((a, b) => a - b);
  const longest = work[Math.floor((work.length - 1) * BARS_QUANTILE)] ?? 1;
  const cells = (each: number) => {
    const { result } = model.turns.get(each) ?? {};
    const usage = result?.usage;
    const ofTurn = spans.get(each) ?? NOTHING;
    return [
      String(each),
      <SpansBar spans={ofTurn} longest={longest} />,
      <Line text={aboutTurn(model, each)} max={160} />,
      result ? <span class={`status ${statusTone(result.status)}`}>{result.status}</span> : <span class="busy" title={spanWords(ofTurn)}>open</span>,
      usage ? count(Number(usage.promptTokens + usage.completionTokens)) : "",
      usage ? share(Number(usage.cachedTokens), Number(usage.promptTokens)) : "",
      usage?.costUsd === undefined ? "" : money(usage.costUsd),
    ];
  };
  return (
    <div class="panes">
      <section class="list" aria-label="Timeline">
        <Rows
          label="Turns" kind="of-turns" items={numbers} height={26} head={["Turn", "Time", "What", "Status", "Tokens", "Cached", "Cost"]}
          keyOf={String} cells={cells} current={String(number)} follows={!chosen} onOpen={(each) => go("run", model.project, model.run, "turn", each)}
        />
        <p class="under">
          {chosen ? <a href={to("run", model.project, model.run)}>Follow the latest turn</a> : <span class="dim">Following the latest turn</span>}
        </p>
        {model.door.isLive && <Chat model={model} />}
      </section>
      <section class="detail" aria-label="Chosen turn" tabIndex={0}>
        <Proposals model={model} />
        {number > 0 ? <TurnView key={number} model={model} number={number} /> : model.isLoaded && <p class="dim">No turn yet.</p>}
      </section>
    </div>
  );
}

const QUEUED: Partial<Record<QueuedCommandKind, string>> = {
  [QueuedCommandKind.USER_MESSAGE]: "message", [QueuedCommandKind.REWIND_TO_TURN]: "rewind", [QueuedCommandKind.REGENERATE]: "regenerate",
  [QueuedCommandKind.UPDATE_MESSAGE]: "edit", [QueuedCommandKind.REMOVE_MESSAGE]: "removal",
};
const BUSY = [SessionState.GENERATING, SessionState.EXECUTING_TOOLS, SessionState.PAUSED, SessionState.WAITING_IDE, SessionState.WAITING_USER_INPUT];

function Chat({ model }: { model: RunModel }) {
  const [text, setText] = useState("");
  const [isUrgent, setUrgent] = useState(false);
  const [problem, setProblem] = useState("");
  const isBusy = BUSY.includes(model.fold.state);
  const attempt = (work: Promise<unknown>, then?: () => void) => void work.then(
    () => { setProblem(""); then?.(); }, (error: unknown) => setProblem(words(error)));
  const send = () => {
    if (!text.trim()) return;
    const value = userMessage(text);
    value.priority = isUrgent && isBusy;
    attempt(model.door.submit(model.project, model.run, { case: "userMessage", value }), () => setText(""));
  };
  const { queue } = model.fold;
  return (
    <section class="chat" aria-label="Chat">
      {queue.length > 0 && (
        <ol class="queue" aria-label="Queue">
          {queue.map(({ commandId, kind, preview }, index) => (
            <li key={commandId || index}>
              {QUEUED[kind] ?? "command"}: <Line text={preview} max={130} />{" "}
              {commandId && <button type="button" onClick={() => attempt(model.door.sessions.cancelCommand({ ...model.address, commandId }))}>Cancel {QUEUED[kind] ?? "command"} {index + 1}</button>}
            </li>
          ))}
        </ol>
      )}
      <form onSubmit={(event) => { event.preventDefault(); send(); }}>
        <label class="wide"><span class="unseen">Message</span>
          <textarea
            rows={2} placeholder={isBusy ? "A message waits in the queue (Ctrl+Enter sends)" : "The next task (Ctrl+Enter sends)"} value={text}
            onInput={(event) => setText(event.currentTarget.value)} onKeyDown={(event) => { if (event.key === "Enter" && event.ctrlKey) send(); }}
          />
        </label>
        <button>Send</button>
        {isBusy && <label><input type="checkbox" checked={isUrgent} onChange={() => setUrgent(!isUrgent)} /> read it in the next turn</label>}
        {isBusy && <button type="button" class="bad" onClick={() => attempt(model.door.submit(model.project, model.run, { case: "abort", value: { $typeName: "turnwright.types.v1.AbortSession" } }))}>Stop</button>}
        {problem && <span role="alert" class="problem"><Line text={plain(problem, 400)} max={400} /></span>}
      </form>
    </section>
  );
}
