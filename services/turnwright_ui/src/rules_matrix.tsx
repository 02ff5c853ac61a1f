/** What rules decide about commands, as a matrix: those that hold beside those that somebody proposes. Nothing happens by it. */
import { create } from "@bufbuild/protobuf";
import { useState } from "preact/hooks";
import { ToolSource } from "@turnwright/client/protos/turnwright/executor/v1/tools_pb.js";
import { type TestedDecision, TestedEffectSchema } from "@turnwright/client/protos/turnwright/rules/v1/rule_service_pb.js";
import { EffectClass } from "@turnwright/client/protos/turnwright/types/v1/command_record_pb.js";
import { RuleLevel, RuleVerdict } from "@turnwright/client/protos/turnwright/types/v1/rule_pb.js";
import { type Door, words } from "./door.js";
import { Line, Problem } from "./text.js";
import { plural } from "./words.js";

/** A command that a run has recorded: the path of its record, its tool, and what it was to do. */
export interface Recorded {
  path: string;
  tool: string;
  target: string;
}

interface Row {
  tool: string;
  what: string;
  /** It only reads: no rule is asked about it. */
  isFree: boolean;
  held: TestedDecision;
  proposed: TestedDecision | undefined;
}

export const VERDICTS: Record<number, [string, string]> = {
  [RuleVerdict.ALLOW]: ["✓ allow", "good"], [RuleVerdict.ASK]: ["? ask", "ask"], [RuleVerdict.DENY]: ["✗ deny", "bad"],
};
/** The server takes 200 at a time. */
const TYPED = 50, RECORDED = 150;
const EXAMPLE = '[[rule]]\nverdict = "allow"\ntool = "sh"\ntarget = "git status *"';
/** The tools whose words are a command line. */
const LINES = new Set(["sh", "env"]);

const Decision = ({ made, isFree }: { made: TestedDecision | undefined; isFree: boolean }) => {
  if (!made) return <td />;
  if (isFree) return <td class="good">no approval needed</td>;
  const [word, tone] = VERDICTS[made.verdict] ?? ["other", ""];
  const { rule } = made;
  const name = rule ? `${rule.tool || "every tool"}${rule.target ? `: ${rule.target}` : ""}` : "no rule matches";
  const level = rule && rule.id ? `, of the ${RuleLevel[rule.level]!.toLowerCase()}` : "";
  return <td class={tone}>{word} <span class="dim"><Line text={name} max={120} />{level}</span></td>;
};

export function RulesMatrix({ door, project, run, recorded }: { door: Door; project: string; run: string; recorded: Recorded[] }) {
  const [typed, setTyped] = useState("");
  const [proposed, setProposed] = useState("");
  const [rows, setRows] = useState<Row[]>();
  const [problem, setProblem] = useState("");

  const tried = async () => {
    const of: [tool: string, what: string, path?: string][] = [
      ...typed.split("\n").filter((line) => line.trim()).slice(0, TYPED).map((line): [string, string] => {
        const [tool, ...what] = line.trim().split(" ");
        return [tool!, what.join(" ")];
      }),
      ...recorded.slice(-RECORDED).reverse().map(({ path, tool, target }): [string, string, string] => [tool, target, path]),
    ];
    const effects = of.map(([tool, value, path]) => create(TestedEffectSchema, path
      ? { what: { case: "entry", value: path } }
      : { tool, what: { case: LINES.has(tool) ? "line" : "place", value } }));
    try {
      const held = await door.rules.testRules({ project, run, effects });
      const other = proposed.trim() ? await door.rules.testRules({ project, run, effects, rulesText: proposed }) : undefined;
      const { tools } = await door.executor.listTools({ project });
      const readers = new Set(tools
        .filter(({ source, effectClass, asks }) => source === ToolSource.BUILT_IN && effectClass === EffectClass.PURE && !asks)
        .map(({ name }) => name));
      // An address may be one that the model made up: that is asked about.
      const isFree = (name: string, target: string) => readers.has(name) && !target.includes("://");
      setRows(of.map(([name, target], at) => ({ tool: name, what: target, isFree: isFree(name, target), held: held.decisions[at]!, proposed: other?.decisions[at] })));
      setProblem("");
    } catch (error) {
      setProblem(words(error));
    }
  };

  const differs = ({ isFree, held, proposed }: Row) => !isFree && proposed !== undefined && proposed.verdict !== held.verdict;
  return (
    <section class="rules-matrix" aria-labelledby="matrix-title">
      <h3 id="matrix-title">Try rules</h3>
      <form onSubmit={(event) => { event.preventDefault(); void tried(); }}>
        <label>Commands, one a line, each behind its tool, such as sh git push <textarea rows={3} spellcheck={false} placeholder={"sh git push\nset src/a.py"} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} /></label>
        <label>Proposed rules, as in rules.toml <textarea rows={5} spellcheck={false} placeholder={EXAMPLE} value={proposed} onInput={(event) => setProposed(event.currentTarget.value)} /></label>
        <p>
          <button type="submit">Try rules</button>{" "}
          {recorded.length > 0 && <span class="dim">beside {plural(Math.min(recorded.length, RECORDED), "recorded command")} of this run</span>}
        </p>
      </form>
      <Problem text={problem} />
      {rows && (
        <div class="scrolled" role="region" aria-labelledby="matrix-caption" tabIndex={0}>
          <table class="matrix">
            <caption id="matrix-caption">What rules decide: {plural(rows.filter(differs).length, "command")} of {rows.length} would be decided otherwise</caption>
            <thead><tr><th scope="col">Tool</th><th scope="col">Command</th><th scope="col">In force</th><th scope="col">Proposed</th></tr></thead>
            <tbody>
              {rows.map((row, at) => (
                <tr key={at} class={differs(row) ? "differs" : undefined}>
                  <td><Line text={row.tool} max={60} /></td>
                  <th scope="row"><code><Line text={row.what || "—"} max={160} /></code></th>
                  <Decision made={row.held} isFree={row.isFree} />
                  <Decision made={row.proposed} isFree={row.isFree} />
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
