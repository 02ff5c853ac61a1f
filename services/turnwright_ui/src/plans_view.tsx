/** The plans of a run, and what each version changed. */
import { structuredPatch } from "diff";
import { useEffect, useState } from "preact/hooks";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { type Plan, PlanStatus } from "@turnwright/client/protos/turnwright/types/v1/plan_pb.js";
import { Diff } from "./diff_view.js";
import { words } from "./door.js";
import { to } from "./routes.js";
import type { RunModel } from "./run_model.js";
import { Line, Long, Problem } from "./text.js";
import { when } from "./words.js";

const SIGNS: Record<number, [string, string]> = {
  [PlanStatus.PENDING]: ["○", "not started"], [PlanStatus.IN_PROGRESS]: ["●", "in progress"], [PlanStatus.COMPLETED]: ["✓", "done"],
  [PlanStatus.CANCELLED]: ["–", "cancelled"], [PlanStatus.BLOCKED]: ["✗", "blocked"],
};

export function PlansView({ model, part }: { model: RunModel; part: string }) {
  const plans = [...model.fold.plans.values()];
  const plan = plans.find(({ planId }) => planId === part) ?? plans[0];
  return (
    <section class="plans" aria-labelledby="plans-title">
      <h2 id="plans-title">{plan ? <>Plan <Line text={plan.planId} /></> : "No plan"}</h2>
      {plans.length > 1 && (
        <nav aria-label="Plans">{plans.map(({ planId }) => (
          <a key={planId} href={to("run", model.project, model.run, "plan", planId)} aria-current={planId === plan?.planId ? "page" : undefined}><Line text={planId} /></a>
        ))}</nav>
      )}
      {plan && <Versions key={plan.planId} model={model} latest={plan} />}
    </section>
  );
}

const asText = (plan: Plan): string =>
  [plan.items.length ? plan.items.map(({ content, status }) => `${SIGNS[status]?.[0] ?? "○"} ${content}`).join("\n") : plan.body, ...plan.deltas.map(({ text }) => text)].join("\n") + "\n";

function Versions({ model, latest }: { model: RunModel; latest: Plan }) {
  const [version, setVersion] = useState(0);
  const [found, setFound] = useState<{ version: number; plan?: Plan | undefined; before?: Plan | undefined; problem?: string }>({ version: -1 });
  const number = version || latest.version;
  useEffect(() => {
    let isGone = false;
    const get = async (wanted: number) => (await model.door.plans.getPlan({ ...model.address, planId: latest.planId, version: wanted })).plan;
    const read = async () => {
      const plan = number === latest.version ? latest : await get(number);
      const before = number > 1 ? await get(number - 1).catch(() => undefined) : undefined;
      if (!isGone) setFound({ version: number, plan, before });
    };
    void read().catch((error: unknown) => isGone || setFound({ version: number, problem: words(error) }));
    return () => void (isGone = true);
  }, [number, latest]);
  const plan = found.version === number ? found.plan : undefined;
  return (
    <>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label>Version <input type="number" min={1} max={latest.version} value={number} onChange={(event) => setVersion(Number(event.currentTarget.value))} /></label>
        <span class="dim">of {latest.version}{plan?.updateTime && `, ${when(timestampMs(plan.updateTime))}`}{plan?.mode && `, ${plan.mode}`}</span>
      </form>
      <Problem text={found.problem} />
      {plan && (plan.items.length > 0
        ? <ul class="items">{plan.items.map(({ content, status, evidencePaths }, index) => (
          <li key={index}><span aria-hidden="true">{SIGNS[status]?.[0] ?? "○"}</span> <span class="unseen">{SIGNS[status]?.[1] ?? ""}: </span><Line text={content} max={1000} />
            {evidencePaths.length > 0 && <span class="dim"> <Line text={evidencePaths.join(", ")} /></span>}</li>
        ))}</ul>
        : <Long text={plan.body} />)}
      {plan?.deltas.map(({ sequence, text }) => <div key={sequence}><h3>Added {sequence}</h3><Long text={text} /></div>)}
      {plan && found.before && <><h3>Changes since version {number - 1}</h3><Diff patch={structuredPatch("", "", asText(found.before), asText(plan)).hunks} /></>}
    </>
  );
}
