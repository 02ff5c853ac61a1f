/** The packet of a turn beside the one before: what it consists of, why, and where it leaves the common prefix. */
import { useEffect, useState } from "preact/hooks";
import {
  type ExplainedPiece, type PacketExplanation, PacketStepKind, PieceForm, PieceKind,
} from "@turnwright/client/protos/turnwright/types/v1/explanation_pb.js";
import { words } from "./door.js";
import { go } from "./routes.js";
import { Rows } from "./rows.js";
import type { RunModel } from "./run_model.js";
import { Line, plain, Problem } from "./text.js";
import { count, plural, share } from "./words.js";

const PIECES_MAX = 1000;
const WIDTH = 900;
const HEIGHT = 22;
/** Narrower pieces are drawn together with those beside them. */
const NARROWEST = 0.6;

const word = (names: Record<number, string>, value: number) => (names[value] ?? "other").toLowerCase().replaceAll("_", " ");

export function PacketView({ model, part }: { model: RunModel; part: string }) {
  const numbers = model.numbers();
  const number = Number(part) || numbers.at(-1) || 0;
  const before = numbers[numbers.indexOf(number) - 1] ?? 0;
  const [found, setFound] = useState<{ number: number; now?: PacketExplanation | undefined; before?: PacketExplanation | undefined; problem?: string }>({ number: 0 });
  useEffect(() => {
    let isGone = false;
    const explain = async (turn: number) => (await model.door.executor.explainPacket({ ...model.address, turn, piecesMax: PIECES_MAX })).explanation;
    const read = async () => {
      const now = await explain(number);
      if (!isGone) setFound({ number, now });
      const earlier = before ? await explain(before).catch(() => undefined) : undefined;
      if (!isGone) setFound({ number, now, before: earlier });
    };
    if (number) void read().catch((error: unknown) => isGone || setFound({ number, problem: words(error) }));
    return () => void (isGone = true);
  }, [number, before]);
  const { now } = found;
  const most = Math.max(1, now?.tokens ?? 0, found.before?.tokens ?? 0);
  return (
    <section class="packet" aria-labelledby="packet-title">
      <h2 id="packet-title">Packet of turn {number}</h2>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <label>Turn <input
          type="number" min={1} max={numbers.at(-1) ?? 1} value={number}
          onChange={(event) => go("run", model.project, model.run, "packet", event.currentTarget.value)}
        /></label>
      </form>
      <Problem text={found.problem} />
      {now && found.number === number && (
        <>
          <p>{count(now.tokens)} tokens of {count(now.ceiling)} that fit ({share(now.tokens, now.ceiling)}); the window has {count(now.contextLength)}. <Line text={now.windowReason} max={300} /></p>
          {now.prefix && (
            <p>The first {count(now.prefix.tokens)} tokens are those of turn {now.prefix.beforeTurn} ({share(now.prefix.tokens, now.tokens)});
              {now.prefix.path || now.prefix.section ? <> it differs first in {word(PieceKind, now.prefix.kind)} <Line text={now.prefix.path || now.prefix.section} />.</> : " nothing before its end differs."}</p>
          )}
          {found.before && <Bar explanation={found.before} most={most} name={`Turn ${found.before.turn}`} />}
          <Bar explanation={now} most={most} name={`Turn ${now.turn}`} />
          <ul class="legend" aria-label="Kinds of pieces">
            {now.kinds.map(({ kind, pieces, tokens }) => (
              <li key={kind}><svg width={10} height={10} aria-hidden="true"><rect class={`piece-${kind}`} width={10} height={10} /></svg> {word(PieceKind, kind)}: {count(tokens)} in {plural(pieces, "piece")}</li>
            ))}
          </ul>
          {now.steps.length > 0 && <><h3>What was done so that it fits</h3><ul>{now.steps.map((step, index) => <li key={index}>{word(PacketStepKind, step.kind)}: {step.entries} entries, {count(step.excess)} tokens too many before</li>)}</ul></>}
          {now.gaps.map((gap) => <p class="dim" key={gap}><Line text={gap} max={400} /></p>)}
          <Pieces pieces={now.pieces} />
          {now.piecesLeftOut > 0 && <p class="dim">{plural(now.piecesLeftOut, "smaller piece")} with {count(now.tokensLeftOut)} tokens are left out.</p>}
        </>
      )}
    </section>
  );
}

/** Pieces from left to right as vendors read them; beyond the mark nothing comes from the cache of the turn before. */
function Bar({ explanation, most, name }: { explanation: PacketExplanation; most: number; name: string }) {
  const x = (tokens: number) => (tokens / most) * WIDTH;
  const drawn: { kind: PieceKind; from: number; to: number }[] = [];
  let tokens = 0;
  for (const piece of explanation.pieces) {
    const from = tokens;
    tokens += piece.tokens;
    const last = drawn.at(-1);
    if (last && (last.kind === piece.kind || x(tokens - last.from) < NARROWEST)) last.to = tokens;
    else drawn.push({ kind: piece.kind, from, to: tokens });
  }
  const prefix = explanation.prefix?.tokens;
  const label = `${name}: ${count(explanation.tokens)} tokens. ${explanation.kinds.map((total) => `${word(PieceKind, total.kind)} ${count(total.tokens)}`).join(", ")}.${prefix === undefined ? "" : ` The prefix ends after ${count(prefix)}.`}`;
  return (
    <figure class="bar">
      <figcaption>{name}</figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT + 6}`} preserveAspectRatio="none" role="img" aria-label={label}>
        {drawn.map(({ kind, from, to: end }) => <rect key={from} class={`piece-${kind}`} x={x(from)} y={3} width={Math.max(0.4, x(end - from))} height={HEIGHT} />)}
        {prefix !== undefined && <rect class="prefix-break" x={Math.min(WIDTH - 2, x(prefix))} y={0} width={2} height={HEIGHT + 6} />}
      </svg>
    </figure>
  );
}

function Pieces({ pieces }: { pieces: ExplainedPiece[] }) {
  const sorted = [...pieces].sort((a, b) => b.tokens - a.tokens || Number(a.begin - b.begin));
  const key = (piece: ExplainedPiece) => `${piece.begin}`;
  return (
    <Rows
      label="Pieces, largest first" kind="of-pieces" items={sorted} height={26} head={["Tokens", "Kind", "Of", "Form", "Why"]} keyOf={key} onOpen={() => undefined}
      cells={(piece) => [
        piece.wholeTokens ? `${count(piece.tokens)} of ${count(piece.wholeTokens)}` : count(piece.tokens), word(PieceKind, piece.kind),
        <Line text={piece.path || piece.section} max={120} />, word(PieceForm, piece.form),
        <span title={plain(piece.why, 400)}><Line text={[piece.why, piece.healed].filter(Boolean).join(" ")} max={240} /></span>,
      ]}
    />
  );
}
