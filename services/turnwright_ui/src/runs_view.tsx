/** The list of runs, and the form that gives an agent a new task. */
import { useMemo, useState } from "preact/hooks";
import { SessionState } from "@turnwright/client/protos/turnwright/types/v1/session_pb.js";
import { Mode } from "@turnwright/client/protos/turnwright/types/v1/settings_pb.js";
import { userMessage } from "./commands.js";
import { type Door, words } from "./door.js";
import { Rows } from "./rows.js";
import { go, to } from "./routes.js";
import type { ListedRun, RunsModel } from "./runs_model.js";
import { useStore } from "./store.js";
import { Line, plain, Problem } from "./text.js";
import { ALL_STATES, plural, stateSign, stateTone, stateWord, when } from "./words.js";

export function StateMark({ state }: { state: SessionState }) {
  return <span class={`state ${stateTone(state)}`}><span aria-hidden="true">{stateSign(state)}</span> {stateWord(state)}</span>;
}

const cells = ({ run, proposals, time }: ListedRun) => [
  <StateMark state={run.state} />,
  <span class="title"><Line text={run.title || "(no task yet)"} /></span>,
  <Line text={run.run} max={60} />,
  <Line text={run.project} max={40} />,
  String(run.turn),
  proposals ? <span class="ask">{plural(proposals, "proposal")}</span> : "",
  time ? when(time) : "",
];

export function RunsView({ door, model }: { door: Door; model: RunsModel }) {
  useStore(model);
  const [project, setProject] = useState("");
  const [state, setState] = useState(0);
  const [text, setText] = useState("");
  const all = model.all();
  const shown = useMemo(() => {
    const wanted = text.toLowerCase();
    return all.filter(({ run, proposals }) =>
      (!project || run.project === project)
      && (!state || run.state === state || (state === SessionState.PAUSED && proposals > 0))
      && (!wanted || `${run.run} ${run.title}`.toLowerCase().includes(wanted)));
  }, [all, project, state, text]);
  return (
    <main id="main" class="runs">
      <h1>Runs</h1>
      <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <label>Project <select value={project} onChange={(event) => setProject(event.currentTarget.value)}>
          <option value="">all projects</option>
          {model.projects.map((name) => <option key={name} value={name}>{plain(name)}</option>)}
        </select></label>
        <label>State <select value={state} onChange={(event) => setState(Number(event.currentTarget.value))}>
          <option value={0}>any state</option>
          {ALL_STATES.map(([value, word]) => <option key={value} value={value}>{word}</option>)}
        </select></label>
        <label>Find <input type="search" value={text} onInput={(event) => setText(event.currentTarget.value)} /></label>
        <span class="dim" data-count={shown.length}>{plural(shown.length, "run")}</span>
        {project && <a href={to("forks", project)}>Forks</a>}
        {project && <a href={to("rules", project)}>Rules</a>}
      </form>
      <Problem text={model.problem} />
      {!model.isLoaded && <p class="dim">Reading…</p>}
      {model.isLoaded && all.length === 0 && (model.projects.length > 0
        ? <p>No run yet. Give an agent its first task below, or with <code>turnwright act</code>.</p>
        : <p>No project that you may see. Work in one with <code>turnwright act</code>, then call <code>turnwright ui</code> and load this page again.</p>)}
      <Rows
        label="Runs" kind="of-runs" items={shown} height={26} head={["State", "Task", "Run", "Project", "Turn", "Waits", "Written"]}
        keyOf={({ key }) => key} cells={cells} onOpen={({ run }) => go("run", run.project, run.run)}
      />
      {door.isLive && model.projects.length > 0 && <NewTask door={door} projects={model.projects} chosen={project} />}
    </main>
  );
}

function NewTask({ door, projects, chosen }: { door: Door; projects: string[]; chosen: string }) {
  const [models, setModels] = useState<string[]>([]);
  const [problem, setProblem] = useState("");
  const readModels = () => {
    if (models.length === 0) door.models.listModels({}).then((page) => setModels(page.models.map(({ alias }) => alias)), (error) => setProblem(words(error)));
  };
  const give = async (event: SubmitEvent) => {
    event.preventDefault();
    const { project, model, mode, prompt } = Object.fromEntries(new FormData(event.currentTarget as HTMLFormElement)) as Record<string, string>;
    const kind = mode === "ask" ? Mode.ASK : Mode.ACT;
    try {
      const made = await door.submit(project!, "", { case: "userMessage", value: userMessage(prompt!, { model: model!, mode: kind }) });
      go("run", project!, made.run!.run);
    } catch (error) {
      setProblem(words(error));
    }
  };
  return (
    <details class="new" onToggle={readModels}>
      <summary>New task</summary>
      <form onSubmit={(event) => void give(event as unknown as SubmitEvent)}>
        <label>Project <select name="project" key={chosen}>
          {projects.map((name) => <option key={name} value={name} selected={name === chosen}>{plain(name)}</option>)}
        </select></label>
        <label>Model <input
          name="model" list="models" required spellcheck={false} autocomplete="off" placeholder="alias or vendor/model"
          defaultValue={models.length === 1 ? models[0] : ""}
        /></label>
        <datalist id="models">{models.map((alias) => <option key={alias} value={alias}>{plain(alias)}</option>)}</datalist>
        <label>Mode <select name="mode"><option value="act">act: may change things</option><option value="ask">ask: reads only</option></select></label>
        <label class="wide">Task <textarea name="prompt" rows={3} required /></label>
        <button>Start</button>
        <Problem text={problem} />
      </form>
    </details>
  );
}
