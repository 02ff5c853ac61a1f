/** The approval rules that hold, as a matrix: what each says, by level. */
import { useEffect, useState } from "preact/hooks";
import { type Rule, RuleLevel, type RuleSet } from "@turnwright/client/protos/turnwright/types/v1/rule_pb.js";
import { Mode } from "@turnwright/client/protos/turnwright/types/v1/settings_pb.js";
import { type Door, words } from "./door.js";
import { type Recorded, RulesMatrix, VERDICTS } from "./rules_matrix.js";
import { Line, Problem } from "./text.js";
import { plural } from "./words.js";

const LEVELS: [RuleLevel, string][] = [[RuleLevel.DEPLOYMENT, "Deployment"], [RuleLevel.PROJECT, "Project"], [RuleLevel.RUN, "Run"]];
const ROWS = 300;

const keyOf = ({ tool, target, principal, mode }: Rule) => JSON.stringify([tool, target, principal, mode]);

export function RulesView({ door, project, run, recorded = [] }: { door: Door; project: string; run: string; recorded?: Recorded[] }) {
  const [set, setSet] = useState<RuleSet>();
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let isGone = false;
    door.rules.listRules({ project, run }).then(
      (found) => isGone || setSet(found.set), (error: unknown) => isGone || setProblem(words(error)));
    return () => void (isGone = true);
  }, [door, project, run]);
  const rows = [...new Map((set?.rules ?? []).map((rule) => [keyOf(rule), rule])).values()];
  return (
    <section class="rules" aria-labelledby="rules-title">
      <h2 id="rules-title">Approval rules of <Line text={run || project} /></h2>
      <Problem text={problem} />
      {set && rows.length === 0 && <p>No rule: somebody is asked before each effect.</p>}
      {rows.length > 0 && (
        <table class="matrix">
          <caption>A deny is final; else the lowest level counts, and at one level the last rule that matches.</caption>
          <thead><tr><th scope="col">Tool</th><th scope="col">What</th><th scope="col">For</th>{LEVELS.map(([level, name]) => <th scope="col" key={level}>{name}</th>)}</tr></thead>
          <tbody>
            {rows.slice(0, ROWS).map((row) => (
              <tr key={keyOf(row)}>
                <th scope="row"><Line text={row.tool || "every tool"} max={60} /></th>
                <td><code><Line text={row.target || "whatever it does"} /></code></td>
                <td><Line text={[row.principal || "everybody", row.mode ? `in ${Mode[row.mode]!.toLowerCase()}` : ""].join(" ")} max={80} /></td>
                {LEVELS.map(([level]) => {
                  const at = set!.rules.findIndex((rule) => rule.level === level && keyOf(rule) === keyOf(row));
                  const rule = set!.rules[at];
                  const [word, tone] = rule ? (VERDICTS[rule.verdict] ?? ["other", ""]) : ["", ""];
                  return <td key={level} class={tone}>{word}{rule?.by && <span class="dim"> <Line text={rule.by} max={40} /></span>}{rule?.network && " with network"}</td>;
                })}
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {rows.length > ROWS && <p class="dim">{plural(rows.length - ROWS, "rule")} more.</p>}
      {door.isLive && <RulesMatrix door={door} project={project} run={run} recorded={recorded} />}
    </section>
  );
}
