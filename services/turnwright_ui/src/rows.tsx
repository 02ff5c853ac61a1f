/** A grid of rows of one height, of which only those in sight exist; with the keys of the ARIA pattern for grids. */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

const SPARE = 6;

interface Props<T> {
  label: string;
  items: readonly T[];
  height: number;
  head: readonly string[];
  keyOf: (item: T) => string;
  cells: (item: T) => ComponentChildren[];
  onOpen: (item: T) => void;
  /** Key of the row that is shown elsewhere on the page. */
  current?: string | undefined;
  /** Stay at the last row while it is in sight. */
  follows?: boolean;
  kind: string;
}

export function Rows<T>({ label, items, height, head, keyOf, cells, onOpen, current, follows, kind }: Props<T>) {
  const box = useRef<HTMLDivElement>(null);
  const wantsFocus = useRef(false);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [activeKey, setActive] = useState("");
  const index = (key: string | undefined) => (key ? items.findIndex((item) => keyOf(item) === key) : -1);
  const active = Math.max(0, index(activeKey) >= 0 ? index(activeKey) : index(current));
  const atEnd = useRef(true);

  const measure = () => {
    const at = box.current;
    if (!at) return;
    atEnd.current = at.scrollTop + at.clientHeight >= at.scrollHeight - height;
    if (at.scrollTop !== view.top || at.clientHeight !== view.height) setView({ top: at.scrollTop, height: at.clientHeight });
  };
  useLayoutEffect(() => {
    const observer = new ResizeObserver(measure);
    observer.observe(box.current!);
    return () => observer.disconnect();
  });
  useLayoutEffect(() => {
    if (follows && atEnd.current && box.current) box.current.scrollTop = items.length * height;
  }, [items.length, follows]);
  useLayoutEffect(() => {
    if (!wantsFocus.current) return;
    wantsFocus.current = false;
    box.current?.querySelector<HTMLElement>(`[data-index="${active}"]`)?.focus({ preventScroll: true });
  });

  const go = (to: number) => {
    const next = Math.min(items.length - 1, Math.max(0, to));
    const item = items[next], at = box.current;
    if (item === undefined || !at) return;
    if (next * height < at.scrollTop) at.scrollTop = next * height;
    else if ((next + 1) * height > at.scrollTop + at.clientHeight) at.scrollTop = (next + 1) * height - at.clientHeight;
    wantsFocus.current = true;
    setActive(keyOf(item));
    measure();
  };
  const page = Math.max(1, Math.floor(view.height / height) - 1);
  const moves: Record<string, () => number> = {
    ArrowDown: () => active + 1, ArrowUp: () => active - 1, PageDown: () => active + page, PageUp: () => active - page,
    Home: () => 0, End: () => items.length - 1,
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const move = moves[event.key];
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (move) {
      event.preventDefault();
      go(move());
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      const item = items[active];
      if (item !== undefined) onOpen(item);
    }
  };

  const first = Math.max(0, Math.floor(view.top / height) - SPARE);
  const end = Math.min(items.length, Math.ceil((view.top + view.height) / height) + SPARE);
  const shown = Array.from({ length: Math.max(0, end - first) }, (_, offset) => first + offset);
  // The row that the Tab key leads to exists always.
  if (items.length && !shown.includes(active)) shown.push(active);
  return (
    <div role="grid" aria-label={label} aria-rowcount={items.length + 1} aria-colcount={head.length} class={`grid ${kind}`} onKeyDown={onKeyDown}>
      <div role="row" aria-rowindex={1} class="row head">
        {head.map((name) => <span role="columnheader" key={name}>{name}</span>)}
      </div>
      <div role="rowgroup" class="scroll" ref={box} onScroll={measure}>
        <div role="presentation" class="all" style={{ height: `${items.length * height}px` }}>
          {shown.map((at) => {
            const item = items[at]!;
            const key = keyOf(item);
            return (
              <div
                key={key} role="row" aria-rowindex={at + 2} data-index={at} class={`row${key === current ? " current" : ""}`}
                aria-selected={key === current} tabIndex={at === active ? 0 : -1} style={{ top: `${at * height}px`, height: `${height}px` }}
                onClick={() => { setActive(key); onOpen(item); }}
              >
                {cells(item).map((cell, column) => <span role="gridcell" key={column}>{cell}</span>)}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}
