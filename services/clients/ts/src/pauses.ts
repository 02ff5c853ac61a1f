/** Waiting. */

const PAUSE_MS = 100;
const PAUSE_MS_MAX = 5_000;

/** Exponential backoff after so many failures in a row, at least one: up to half of a pause is left to chance, so that many do not return at once. */
export const backoffMs = (failures: number): number =>
  Math.min(PAUSE_MS_MAX, PAUSE_MS * 2 ** (failures - 1)) * (1 - Math.random() / 2);

/** Ends early, without an error, when the signal aborts. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end);
    if (signal?.aborted) end();
  });
}

/** Until somebody sees the page, or the signal aborts; at once where there is no page. */
export function shown(signal: AbortSignal): Promise<void> {
  if (typeof document === "undefined" || !document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      signal.removeEventListener("abort", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
  });
}
