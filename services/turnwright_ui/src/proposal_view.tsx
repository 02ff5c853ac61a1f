/** Proposals that wait: what would happen, hunk by hunk, and the decision. */
import { create } from "@bufbuild/protobuf";
import { TurnwrightError } from "@turnwright/client";
import { applyPatch, structuredPatch, type StructuredPatch } from "diff";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { GetProposalResponse } from "@turnwright/client/protos/turnwright/proposals/v1/proposal_service_pb.js";
import { AcceptSchema, RejectSchema } from "@turnwright/client/protos/turnwright/proposals/v1/proposal_service_pb.js";
import { type EditedContent, EditedContentSchema } from "@turnwright/client/protos/turnwright/types/v1/command_record_pb.js";
import { type Proposal, FileChangeKind } from "@turnwright/client/protos/turnwright/types/v1/proposal_pb.js";
import { ApproveToolsSchema, DecisionScope } from "@turnwright/client/protos/turnwright/types/v1/session_command_pb.js";
import { Diff, Hunk } from "./diff_view.js";
import { words } from "./door.js";
import type { RunModel } from "./run_model.js";
import { Line, Long, Problem } from "./text.js";
import { plural } from "./words.js";

const PROPOSALS = 10;

export function Proposals({ model }: { model: RunModel }) {
  const waiting = [...model.fold.proposals.values()].filter(({ effect }) => effect.case !== "clientTool");
  if (waiting.length === 0) return null;
  return (
    <section class="proposals" aria-labelledby="proposals-title">
      <h2 id="proposals-title">{plural(waiting.length, "proposal")} waiting for a decision</h2>
      {waiting.slice(0, PROPOSALS).map((proposal) => <ProposalView key={proposal.path} model={model} proposal={proposal} />)}
      {waiting.length > PROPOSALS && <p class="dim">{waiting.length - PROPOSALS} more, after these</p>}
    </section>
  );
}

interface Choice {
  path: string;
  before: string;
  patch: StructuredPatch;
}

/** The files of which parts can be left out: those whose texts before and after are known. */
function choicesOf(full: GetProposalResponse | undefined): Choice[] {
  if (full?.proposal?.effect.case !== "files") return [];
  return full.proposal.effect.value.changes.flatMap((change) => {
    const after = full.contents.find(({ path }) => path === change.path || path === "")?.content;
    if (change.kind !== FileChangeKind.MODIFY || change.oldText === undefined || after === undefined) return [];
    return [{ path: change.path, before: change.oldText, patch: structuredPatch(change.path, change.path, change.oldText, after, "", "", { context: 3 }) }];
  });
}

function ProposalView({ model, proposal }: { model: RunModel; proposal: Proposal }) {
  const [full, setFull] = useState<GetProposalResponse>();
  const [leftOut, setLeftOut] = useState<ReadonlySet<string>>(new Set());
  const [line, setLine] = useState<string>();
  const [comment, setComment] = useState("");
  const [isLasting, setLasting] = useState(false);
  const [problem, setProblem] = useState("");
  const [isSent, setSent] = useState(false);
  useEffect(() => {
    let isGone = false;
    if (model.door.isLive) {
      model.door.proposals.getProposal({ ...model.address, path: proposal.path })
        .then((found) => isGone || setFull(found), (error: unknown) => isGone || TurnwrightError.of(error).reason === "NOT_PROPOSED" || setProblem(words(error)));
    }
    return () => void (isGone = true);
  }, [proposal]);
  const choices = useMemo(() => choicesOf(full), [full]);
  const { effect } = proposal;
  const isQuestion = effect.case === "question";
  const id = proposal.path.replace(/[^\w]/g, "-");

  const contents = (): EditedContent[] => {
    if (effect.case === "command" && line !== undefined && line !== effect.value.command) return [create(EditedContentSchema, { path: "", content: line })];
    return choices.filter(({ path, patch }) => patch.hunks.some((_, at) => leftOut.has(`${path}:${at}`))).map(({ path, before, patch }) => {
      const kept = { ...patch, hunks: patch.hunks.filter((_, at) => !leftOut.has(`${path}:${at}`)) };
      const content = applyPatch(before, kept);
      if (content === false) throw new Error(`The rest of ${path} cannot be applied by itself.`);
      return create(EditedContentSchema, { path, content });
    });
  };
  const send = (work: () => Promise<unknown>) => {
    setSent(true);
    setProblem("");
    void work().catch((error: unknown) => {
      setSent(false);
      setProblem(TurnwrightError.of(error).reason === "NOT_PROPOSED" ? "Somebody else has decided meanwhile." : words(error));
    });
  };
  const at = () => ({ ...model.address, path: proposal.path });
  const accept = () => send(async () => {
    if (isLasting) {
      const value = create(ApproveToolsSchema, { calls: [proposal.path], scope: DecisionScope.RUN, contents: contents() });
      return model.door.submit(model.project, model.run, { case: "approveTools", value });
    }
    const value = create(AcceptSchema, { contents: contents(), answer: isQuestion ? comment : "", comment: effect.case === "files" ? comment : "" });
    return model.door.proposals.resolveProposal({ ...at(), decision: { case: "accept", value } });
  });
  const reject = () => send(() =>
    model.door.proposals.resolveProposal({ ...at(), decision: { case: "reject", value: create(RejectSchema, { comment }) } }));
  const turn = (key: string) => {
    const next = new Set(leftOut);
    if (!next.delete(key)) next.add(key);
    setLeftOut(next);
  };

  return (
    <article class="proposal" aria-labelledby={`${id}-title`}>
      <h3 id={`${id}-title`}><span class="tool"><Line text={proposal.tool} max={60} /></span> <Line text={proposal.target} /></h3>
      {proposal.body && <Long text={proposal.body} />}
      {effect.case === "files" && effect.value.changes.map((change) => {
        const choice = choices.find(({ path }) => path === change.path);
        return (
          <div class="file" key={change.path}>
            <h4><Line text={change.path} /> {["", "created", "changed", "deleted"][change.kind]}</h4>
            {!choice && <Diff patch={change.patch} />}
            {choice?.patch.hunks.map((hunk, index) => {
              const key = `${choice.path}:${index}`;
              return (
                <div class={leftOut.has(key) ? "left-out" : ""} key={key}>
                  <label><input type="checkbox" checked={!leftOut.has(key)} disabled={!model.door.isLive} onChange={() => turn(key)} /> Hunk {index + 1} of {choice.patch.hunks.length}, from line {hunk.oldStart}</label>
                  <Hunk hunk={hunk} />
                </div>
              );
            })}
          </div>
        );
      })}
      {effect.case === "command" && (
        <label class="wide">Command line <textarea class="code" rows={2} spellcheck={false} value={line ?? effect.value.command} disabled={!model.door.isLive} onInput={(event) => setLine(event.currentTarget.value)} /></label>
      )}
      {effect.case === "question" && (
        <>
          <Long text={effect.value.question} />
          {effect.value.options.map((option) => <button type="button" key={option} onClick={() => setComment(option)}><Line text={option} /></button>)}
        </>
      )}
      {effect.case === "call" && <Long kind="code" text={proposal.commandWritten?.body || effect.value.dataJson} />}
      {model.door.isLive && (
        <div class="decide">
          <label class="wide">{isQuestion ? "Answer" : "Comment for the model"} <textarea rows={2} value={comment} onInput={(event) => setComment(event.currentTarget.value)} /></label>
          {proposal.kindTargets.length > 0 && (
            <label><input type="checkbox" checked={isLasting} onChange={() => setLasting(!isLasting)} /> Accept later ones of this kind in this run, too: <Line text={proposal.kindTargets.join(", ") || proposal.tool} /></label>
          )}
          <button type="button" class="good" disabled={isSent} onClick={accept}>{isQuestion ? "Answer" : leftOut.size ? "Accept the rest" : "Accept"}</button>
          <button type="button" class="bad" disabled={isSent} onClick={reject}>Reject</button>
          <Problem text={problem} />
        </div>
      )}
    </article>
  );
}
