/** What views show and events change: whoever subscribed is told at most once a frame. */
import { useEffect, useState } from "preact/hooks";

export class Store {
  private readonly told = new Set<() => void>();
  private isDue = false;

  changed(): void {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      for (const tell of this.told) tell();
    });
  }

  subscribe(tell: () => void): () => void {
    this.told.add(tell);
    return () => this.told.delete(tell);
  }
}

/** Renders the component again when the store has changed. */
export function useStore<S extends Store>(store: S): S {
  const [, again] = useState(0);
  useEffect(() => {
    again((count) => count + 1);
    return store.subscribe(() => again((count) => count + 1));
  }, [store]);
  return store;
}
