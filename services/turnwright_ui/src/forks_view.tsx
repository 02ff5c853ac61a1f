/** The runs of a project as a tree of forks, and two runs side by side. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { type Door } from "./door.js";
import { go, to } from "./routes.js";
import { RunModel } from "./run_model.js";
import { Rows } from "./rows.js";
import type { ListedRun, RunsModel } from "./runs_model.js";
import { aboutTurn } from "./run_view.js";
import { StateMark } from "./runs_view.js";
import { useStore } from "./store.js";
import { Line } from "./text.js";
import { count, money, plural, share } from "./words.js";

interface Placed {
  listed: ListedRun;
  depth: number;
}

/** The runs in the order of a tree: each fork below its parent. One whose parent is gone is a root. */
export function treeOf(runs: ListedRun[]): Placed[] {
  const names = new Set(runs.map(({ run }) => run.run));
  const below = new Map<string, ListedRun[]>();
  for (const listed of [...runs].sort((a, b) => (a.run.run < b.run.run ? -1 : 1))) {
    const parent = listed.run.forkedFrom?.run ?? "";
    const place = names.has(parent) && parent !== listed.run.run ? parent : "";
    below.set(place, [...(below.get(place) ?? []), listed]);
  }
  const placed: Placed[] = [];
  const waiting: Placed[] = (below.get("") ?? []).map((listed) => ({ listed, depth: 0 })).reverse();
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    placed.push(next);
    for (const listed of [...(below.get(next.listed.run.run) ?? [])].reverse()) waiting.push({ listed, depth: next.depth + 1 });
  }
  return placed;
}

export function ForksView({ model, project }: { model: RunsModel; project: string }) {
  useStore(model);
  const [chosen, setChosen] = useState<string[]>([]);
  const [onlyForks, setOnlyForks] = useState(true);
  const all = model.all();
  const placed = useMemo(() => treeOf(model.of(project)), [all, project]);
  const related = useMemo(() => {
    const parents = new Set(placed.map(({ listed }) => listed.run.forkedFrom?.run));
    return placed.filter(({ listed, depth }) => depth > 0 || parents.has(listed.run.run));
  }, [placed]);
  const shown = onlyForks ? related : placed;
  const choose = ({ listed }: Placed) => {
    const name = listed.run.run;
    setChosen(chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen.slice(-1), name]);
  };
  return (
    <main id="main" class="forks">
      <h1>Forks in <Line text={project} /></h1>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label><input type="checkbox" checked={onlyForks} onChange={() => setOnlyForks(!onlyForks)} /> only runs with forks</label>
        <span class="dim">Enter chooses a run; choose two to compare.</span>
        {chosen.length === 1 && <a href={to("run", project, chosen[0]!)}>Open <Line text={chosen[0]!} max={60} /></a>}
        {chosen.length === 2 && <a href={to("compare", project, ...chosen)}>Compare <Line text={chosen[0]!} max={60} /> with <Line text={chosen[1]!} max={60} /></a>}
      </form>
      {shown.length === 0 && <p class="dim">{model.isLoaded ? "No run of this project was forked." : "Reading…"}</p>}
      <Rows
        label="Tree of forks" kind="of-forks" items={shown} height={26} head={["Run", "Chosen", "From turn", "State", "Turns", "Task"]} keyOf={({ listed }) => listed.key} onOpen={choose}
        cells={({ listed: { run }, depth }) => [
          <span class="branch"><span aria-hidden="true">{depth ? `${"│ ".repeat(depth - 1)}└ ` : ""}</span><span class="unseen">Level {depth + 1}: </span><Line text={run.run} max={60} /></span>,
          chosen.includes(run.run) ? "✓ chosen" : "", run.forkedFrom ? String(run.forkedFrom.turn) : "", <StateMark state={run.state} />, String(run.turn), <Line text={run.title} />,
        ]}
      />
    </main>
  );
}

export function CompareView({ door, project, names }: { door: Door; project: string; names: [string, string] }) {
  const models = useMemo(() => names.map((name) => new RunModel(door, project, name)) as [RunModel, RunModel], [door, project, ...names]);
  useEffect(() => () => models.forEach((model) => model.close()), [models]);
  models.forEach((model) => useStore(model));
  const numbers = [...new Set(models.flatMap((model) => model.numbers()))].sort((a, b) => a - b);
  const origin = models.map((model, at) => (model.fold.run?.forkedFrom?.run === names[1 - at] ? model.fold.run!.forkedFrom!.turn : 0)).find(Boolean);
  const cell = (model: RunModel, number: number) => {
    const { result } = model.turns.get(number) ?? {};
    const about = aboutTurn(model, number);
    return <>{result && <span class="status">{result.status}</span>} <Line text={about} max={120} /> {result?.usage && <span class="dim">{count(Number(result.usage.totalTokens))}</span>}</>;
  };
  return (
    <main id="main" class="compare">
      <h1><Line text={names[0]} /> and <Line text={names[1]} /></h1>
      {models.map((model, at) => {
        const totals = model.totals();
        return (
          <p key={names[at]}><a href={to("run", project, names[at]!)}><Line text={names[at]!} /></a>: <StateMark state={model.fold.state} />, {plural(totals.turns, "turn")} of its own,{" "}
            {count(totals.prompt)} in, {count(totals.completion)} out, {share(totals.cached, totals.prompt)} cached, {money(totals.cost)}
            {model.problem && <span role="alert" class="problem"> <Line text={model.problem} max={300} /></span>}</p>
        );
      })}
      {origin !== undefined && <p>They part after turn {origin}.</p>}
      <Rows
        label="Turns side by side" kind="of-two" items={numbers} height={26} head={["Turn", "Same", names[0], names[1]]} keyOf={String}
        onOpen={(number) => go("run", project, models[1].turns.has(number) ? names[1] : names[0], "turn", number)}
        cells={(number) => [String(number), isSame(models, number) ? "same" : "differs", cell(models[0], number), cell(models[1], number)]}
      />
    </main>
  );
}

function isSame(models: [RunModel, RunModel], number: number): boolean {
  const [mine, other] = models.map((model) => model.fold.of(number).filter(({ scheme }) => scheme === "assistant" || scheme === "prompt").map(({ hash, body }) => hash || body).join());
  return mine === other;
}
