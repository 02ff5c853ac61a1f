/** The page: who looks at it, and which view. */
import { render } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Announcer } from "./announcer.js";
import { Door, isUnknownToken, keepToken, ownToken, words } from "./door.js";
import { CompareView, ForksView } from "./forks_view.js";
import { recordedTransport, recording } from "./recorded.js";
import { parts, to } from "./routes.js";
import { RulesView } from "./rules_view.js";
import { RunModel } from "./run_model.js";
import { RunsModel } from "./runs_model.js";
import { RunsView } from "./runs_view.js";
import { RunView } from "./run_view.js";
import { Line, Problem } from "./text.js";

function usePlace(): string[] {
  const [place, setPlace] = useState(parts);
  useEffect(() => {
    const look = () => {
      // A second `turnwright ui` opens a new address in a tab that is there.
      if (location.hash.startsWith("#token=")) location.reload();
      else setPlace(parts());
    };
    addEventListener("hashchange", look);
    return () => removeEventListener("hashchange", look);
  }, []);
  return place;
}

function SignIn({ problem }: { problem: string }) {
  const enter = (event: Event) => {
    event.preventDefault();
    keepToken(String(new FormData(event.currentTarget as HTMLFormElement).get("token")).trim());
    location.reload();
  };
  return (
    <main id="main" class="sign-in">
      <h1>Turnwright</h1>
      <p>Open the page with <code>turnwright ui</code>, or enter a token of <code>turnwright token create</code>. This tab keeps it until it is closed.</p>
      <form onSubmit={enter}>
        <label>Token <input name="token" type="password" autocomplete="off" required /></label> <button>Enter</button>
      </form>
      <Problem text={problem} />
    </main>
  );
}

/** Whoever leads somebody to a token of their own has them work under their name. */
function Offer({ offered, hasOne, dismiss }: { offered: string; hasOne: boolean; dismiss: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [name, setName] = useState("");
  useEffect(() => {
    dialog.current?.showModal();
    const door = Door.of(offered);
    door.grants.getIdentity({ pageSize: 1 }).then((who) => setName(who.principal), () => {});
  }, [offered]);
  const take = () => {
    keepToken(offered);
    location.reload();
  };
  return (
    <dialog ref={dialog} onClose={dismiss} aria-labelledby="offer">
      <h2 id="offer">Another token</h2>
      <p>The address that was opened has a token{name && <> of <b><Line text={name} /></b></>}. Use it only if you opened that address: what you do would be done under its name{hasOne && ", and this tab forgets the token that it has"}.</p>
      <button type="button" autofocus onClick={() => dialog.current?.close()}>{hasOne ? "Keep mine" : "Do not use it"}</button>{" "}
      <button type="button" onClick={take}>Use the other one</button>
    </dialog>
  );
}

function RunPage({ door, project, run, view, part }: { door: Door; project: string; run: string; view: string; part: string }) {
  const model = useMemo(() => new RunModel(door, project, run), [door, project, run]);
  useEffect(() => () => model.close(), [model]);
  return <RunView model={model} view={view} part={part} />;
}

function ListPage({ door, word, project }: { door: Door; word: string; project: string }) {
  const model = useMemo(() => new RunsModel(door), [door]);
  useEffect(() => () => model.close(), [model]);
  return word === "forks" ? <ForksView model={model} project={project} /> : <RunsView door={door} model={model} />;
}

function Page({ door, only }: { door: Door; only: [string, string] | undefined }) {
  const [word = "", first = "", second = "", third = "", fourth = ""] = usePlace();
  useEffect(() => {
    document.title = [word === "run" ? second : first, "Turnwright"].filter(Boolean).join(" · ");
  }, [word, first, second]);
  if (only) return <RunPage door={door} project={only[0]} run={only[1]} view={word === "run" ? third : ""} part={fourth} />;
  if (word === "run" && second) return <RunPage door={door} project={first} run={second} view={third} part={fourth} />;
  if (word === "compare" && third) return <CompareView door={door} project={first} names={[second, third]} />;
  if (word === "rules" && first) return <main id="main"><h1><Line text={first} /></h1><RulesView door={door} project={first} run="" /></main>;
  return <ListPage door={door} word={word} project={first} />;
}

function App() {
  const recorded = useMemo(recording, []);
  const { kept: token, offered } = useMemo(() => (recorded ? { kept: "", offered: "" } : ownToken()), []);
  const [isAsked, setAsked] = useState(offered !== "");
  const [name, setName] = useState("");
  const door = useMemo(() => (recorded ? new Door(recordedTransport(recorded), false) : token ? Door.of(token) : undefined), [token]);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (!door?.isLive) return;
    // A token that is not known any more is of no use to this tab either.
    door.grants.getIdentity({ pageSize: 1 }).then((who) => setName(who.principal)).catch((error: unknown) => {
      if (!isUnknownToken(error)) return;
      keepToken("");
      setProblem(words(error));
    });
  }, [door]);
  const leave = () => {
    keepToken("");
    location.reload();
  };
  const isKnown = door && !problem;
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.querySelector<HTMLElement>("#main [tabindex='0'], #main a, #main input, #main button")?.focus(); }}>Skip to the content</a>
      {isKnown && (
        <header class="top">
          <nav aria-label="Turnwright"><a href={recorded ? to("run", recorded.project, recorded.run) : "#/"}>turnwright</a></nav>
          {recorded ? <span class="dim">a copy of a run, as it was when it was exported</span> : <span><span class="dim who"><Line text={name} /></span> <button type="button" onClick={leave}>Leave</button></span>}
        </header>
      )}
      {isKnown ? <Page door={door} only={recorded && [recorded.project, recorded.run]} /> : <SignIn problem={problem} />}
      {isAsked && <Offer offered={offered} hasOne={token !== ""} dismiss={() => setAsked(false)} />}
      <Announcer />
    </>
  );
}

render(<App />, document.getElementById("page")!);
