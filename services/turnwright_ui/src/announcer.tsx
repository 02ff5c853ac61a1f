/** What a screen reader says of new events: politely, and at most one sentence every few seconds. */
import { useEffect, useState } from "preact/hooks";

const EVERY_MS = 3000;
const CHARS_MAX = 300;

let waiting = "";
let said: ((text: string) => void) | undefined;
let timer: ReturnType<typeof setTimeout> | undefined;

/** Says the latest of what was announced meanwhile. */
export function announce(text: string): void {
  waiting = text.slice(0, CHARS_MAX);
  timer ??= setTimeout(() => {
    timer = undefined;
    said?.(waiting);
  }, EVERY_MS);
}

export function Announcer() {
  const [text, setText] = useState("");
  useEffect(() => {
    said = setText;
    return () => void (said = undefined);
  }, []);
  return <div role="status" aria-live="polite" class="unseen">{text}</div>;
}
