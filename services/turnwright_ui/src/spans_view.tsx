/** What the time of a turn was spent on, as a bar and in words. */
import type { Spans } from "./run_model.js";
import { duration } from "./words.js";

const WIDTH = 150;
const HEIGHT = 12;
/** A wait for a person may last days: in the bar it takes this much, and its words say how long it was. */
const PEOPLE_WIDTH = 18;

export const SPANS: [keyof Spans, string][] = [
  ["wait", "waiting for the model"], ["stream", "streaming"], ["commands", "commands"], ["people", "people"],
];

export const spanWords = (spans: Spans): string =>
  SPANS.filter(([name]) => spans[name] >= 1).map(([name, word]) => `${word} ${duration(spans[name])}`).join(", ") || "no time";

/** `longest` is the milliseconds of work that a whole bar stands for. */
export function SpansBar({ spans, longest }: { spans: Spans; longest: number }) {
  const scale = (ms: number) => (Math.min(ms, longest) / Math.max(1, longest)) * (WIDTH - PEOPLE_WIDTH);
  let x = 0;
  return (
    <svg class="spans" width={WIDTH} height={HEIGHT} role="img" aria-label={spanWords(spans)}>
      <title>{spanWords(spans)}</title>
      {SPANS.map(([name]) => {
        const wide = name === "people" ? (spans.people > 500 ? PEOPLE_WIDTH : 0) : scale(spans[name]);
        const at = x;
        x += wide;
        return wide > 0 && <rect key={name} class={`span-${name}`} x={at} y={0} width={Math.max(1, wide)} height={HEIGHT} />;
      })}
    </svg>
  );
}

export function Legend() {
  return (
    <ul class="legend" aria-label="Colours of the bars">
      {SPANS.map(([name, word]) => (
        <li key={name}><svg width={10} height={10} aria-hidden="true"><rect class={`span-${name}`} width={10} height={10} /></svg> {word}</li>
      ))}
    </ul>
  );
}
