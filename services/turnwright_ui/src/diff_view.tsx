/** Unified diffs, with the words that differ in a line that was changed. */
import { diffWordsWithSpace, parsePatch, type StructuredPatchHunk } from "diff";
import { useMemo, useState } from "preact/hooks";
import { cut, visible } from "./text.js";
import { count, plural } from "./words.js";

const LINES = 300;
const LINE_CHARS = 600;
/** Longer lines are not compared word by word. */
const COMPARED_CHARS = 400;

export function Hunk({ hunk, linesMax = LINES }: { hunk: StructuredPatchHunk; linesMax?: number }) {
  const lines = hunk.lines.slice(0, linesMax);
  let before = hunk.oldStart, after = hunk.newStart;
  return (
    <div class="hunk" role="table" aria-label={`Lines ${hunk.oldStart} to ${hunk.oldStart + Math.max(0, hunk.oldLines - 1)}`}>
      {lines.map((text, at) => {
        const sign = text[0] ?? " ";
        const number = sign === "-" ? before++ : sign === "+" ? after++ : (before++, after++);
        const tone = sign === "+" ? "added" : sign === "-" ? "removed" : "";
        const name = sign === "+" ? "added" : sign === "-" ? "removed" : "same";
        return (
          <div class={`line ${tone}`} role="row" key={at}>
            <span class="number" role="rowheader" aria-label={`${name}, line ${number}`}>{number}</span>
            <span class="sign" aria-hidden="true">{sign}</span>
            <code role="cell" dir="ltr"><bdi>{marked(lines, at)}</bdi></code>
          </div>
        );
      })}
      {hunk.lines.length > lines.length && <p class="dim">{plural(hunk.lines.length - lines.length, "line")} more</p>}
    </div>
  );
}

/** A line; where a single one was replaced by another one, with their different words marked. */
function marked(lines: string[], at: number) {
  const text = lines[at]!;
  const sign = text[0];
  const other = sign === "+" && lines[at - 1]?.[0] === "-" && lines[at - 2]?.[0] !== "-" && lines[at + 1]?.[0] !== "+" ? lines[at - 1]
    : sign === "-" && lines[at + 1]?.[0] === "+" && lines[at + 2]?.[0] !== "+" && lines[at - 1]?.[0] !== "-" ? lines[at + 1] : undefined;
  if (other === undefined || text.length > COMPARED_CHARS || other.length > COMPARED_CHARS) {
    const body = cut(text.slice(1), LINE_CHARS);
    const rest = text.length - 1 - body.length;
    return rest > 0 ? [visible(body), <span class="dim" key="rest"> … {count(rest)} characters more</span>] : visible(body);
  }
  const [before, after] = sign === "-" ? [text, other] : [other, text];
  return diffWordsWithSpace(before.slice(1), after.slice(1))
    .filter(({ added, removed }) => (sign === "+" ? !removed : !added))
    .map(({ value, added, removed }, index) => (added || removed ? <mark key={index}>{visible(value)}</mark> : visible(value)));
}

export function hunksOf(patch: string): StructuredPatchHunk[] {
  try {
    return parsePatch(patch).flatMap(({ hunks }) => hunks);
  } catch {
    return []; // Cut off in the middle of a hunk.
  }
}

export function Diff({ patch }: { patch: string | StructuredPatchHunk[] }) {
  const [lines, setLines] = useState(LINES);
  const hunks = useMemo(() => (typeof patch === "string" ? hunksOf(patch) : patch), [patch]);
  const text = typeof patch === "string" ? patch.trim() : "";
  if (hunks.length === 0) return text ? <pre class="text" dir="ltr"><bdi>{visible(cut(text, 20_000))}</bdi></pre> : <p class="dim">No difference.</p>;
  let left = lines;
  const shown = hunks.filter((hunk) => (left -= hunk.lines.length) > -hunk.lines.length);
  const total = hunks.reduce((sum, hunk) => sum + hunk.lines.length, 0);
  return (
    <div class="diff">
      {shown.map((hunk, index) => <Hunk hunk={hunk} linesMax={lines} key={index} />)}
      {total > lines && <button type="button" onClick={() => setLines(lines + 1000)}>Show more of {plural(total, "line")}</button>}
    </div>
  );
}
