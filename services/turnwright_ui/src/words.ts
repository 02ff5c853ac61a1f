/** Words and figures for people. */
import { SessionState } from "@turnwright/client/protos/turnwright/types/v1/session_pb.js";

const STATES: Record<number, string> = {
  [SessionState.UNSPECIFIED]: "unknown",
  [SessionState.IDLE]: "idle",
  [SessionState.GENERATING]: "generating",
  [SessionState.EXECUTING_TOOLS]: "running commands",
  [SessionState.PAUSED]: "waiting for a decision",
  [SessionState.WAITING_IDE]: "waiting for a client",
  [SessionState.WAITING_USER_INPUT]: "waiting for an answer",
  [SessionState.COMPLETED]: "completed",
  [SessionState.ERROR]: "failed",
};
export const stateWord = (state: SessionState): string => STATES[state] ?? "unknown";
export const ALL_STATES: [SessionState, string][] = Object.entries(STATES).slice(1).map(([state, word]) => [Number(state), word]);

/** A sign for a state, beside its word, so that it never depends on colour alone. */
export const stateSign = (state: SessionState): string => "·○●●◆◆◆✓✗"[state] ?? "·";
export const stateTone = (state: SessionState): string =>
  ["", "", "busy", "busy", "ask", "ask", "ask", "good", "bad"][state] ?? "";
export const statusTone = (status: number): string =>
  status >= 500 || status === 413 || status === 422 || status === 403 ? "bad" : status === 202 ? "ask" : status >= 400 ? "dim" : status >= 200 ? "good" : "busy";

export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
  return ms < 172_800_000 ? `${(ms / 3_600_000).toFixed(1)} h` : `${(ms / 86_400_000).toFixed(1)} d`;
}

export function count(value: number): string {
  if (value < 10_000) return value.toLocaleString("en");
  return value < 1e6 ? `${(value / 1000).toFixed(value < 1e5 ? 1 : 0)} k` : `${(value / 1e6).toFixed(2)} M`;
}

export const money = (usd: number): string => `$${usd < 0.01 ? usd.toFixed(5) : usd < 10 ? usd.toFixed(3) : usd.toFixed(2)}`;
export const share = (part: number, whole: number): string => (whole ? `${Math.round((100 * part) / whole)} %` : "–");
export const plural = (n: number, word: string): string => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

export function when(ms: number): string {
  const time = new Date(ms);
  const two = (n: number) => String(n).padStart(2, "0");
  const clock = `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
  const isToday = new Date().toDateString() === time.toDateString();
  return isToday ? clock : `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${clock.slice(0, 5)}`;
}
