/** Texts that a model, a file or a person wrote: always text, never markup, and never wider than what was asked for. */
import { useState } from "preact/hooks";
import { count } from "./words.js";

const SHOWN_CHARS = 4000;
const MORE_CHARS = 20_000;

/** Controls that are not seen, and may turn the text around them: bidi, zero width, C0 and C1. Tabs, line ends and joiners stay. */
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
const named = (sign: string) => `⟦U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟧`;
export const visible = (text: string): string => text.replaceAll("\r\n", "\n").replace(UNSEEN, named);

/** At most so many UTF-16 units, without half a character at the end. */
export const cut = (text: string, max: number): string =>
  text.length <= max ? text : text.slice(0, (text.charCodeAt(max - 1) & 0xfc00) === 0xd800 ? max - 1 : max);

const line = (text: string, max: number) => {
  const shown = cut(text, max);
  return visible(shown.replace(/\s+/g, " ")) + (shown.length < text.length ? "…" : "");
};

/** One line, isolated from the direction of what stands around it. */
export const Line = ({ text, max = 200 }: { text: string; max?: number }) => <bdi>{line(text, max)}</bdi>;
/** The same for names of controls and attributes. */
export const plain = (text: string, max = 120): string => line(text, max);

/** What is wrong, told at once to who listens; empty: nothing is. */
export const Problem = ({ text }: { text: string | undefined }) => (text ? <p role="alert" class="problem"><Line text={text} max={400} /></p> : null);

/** A text of any length: its beginning, and more on demand. */
export function Long({ text, kind = "text" }: { text: string; kind?: string }) {
  const [chars, setChars] = useState(SHOWN_CHARS);
  const shown = cut(text, chars);
  const rest = text.length - shown.length;
  return (
    <div class="long">
      <pre class={kind} dir="auto"><bdi>{visible(shown)}</bdi></pre>
      {rest > 0 && (
        <button type="button" onClick={() => setChars(chars + MORE_CHARS)}>
          Show {count(Math.min(rest, MORE_CHARS))} more of {count(rest)} characters
        </button>
      )}
    </div>
  );
}

/** The end of a text that grows. */
export function Tail({ text, kind = "text" }: { text: string; kind?: string }) {
  const left = Math.max(0, text.length - SHOWN_CHARS);
  return (
    <div class="long">
      {left > 0 && <p class="dim">{count(left)} characters before</p>}
      <pre class={kind} dir="auto"><bdi>{visible(text.slice(left))}</bdi></pre>
    </div>
  );
}
