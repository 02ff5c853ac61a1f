/** The runs of all projects that the caller may read, as they change. */
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { RunsFold } from "@turnwright/client";
import type { WatchRunsResponse } from "@turnwright/client/protos/turnwright/runs/v1/watch_runs_pb.js";
import type { Run } from "@turnwright/client/protos/turnwright/types/v1/run_pb.js";
import { announce } from "./announcer.js";
import { type Door, WHILE_SHOWN, words } from "./door.js";
import { Store } from "./store.js";

/** Streams at a time: a browser has six connections to a host without HTTP/2. With more projects each gets its turn. */
const STREAMS = 3;
/** A stream that was silent for so long makes room for another project's. */
const QUIET_MS = 4000;
const PROJECTS_EVERY_MS = 30_000;
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

export interface ListedRun {
  key: string;
  run: Run;
  proposals: number;
  time: number;
}

export class RunsModel extends Store {
  projects: string[] = [];
  problem = "";
  isLoaded = false;
  private readonly byProject = new Map<string, RunsFold>();
  private readonly waiting: string[] = [];
  private readonly ending = new AbortController();
  private sorted: ListedRun[] | undefined;

  constructor(private readonly door: Door) {
    super();
    void this.follow().catch((error: unknown) => {
      this.problem = words(error);
      this.changed();
    });
  }

  close(): void {
    this.ending.abort();
  }

  /** Latest written first. */
  all(): ListedRun[] {
    this.sorted ??= this.projects.flatMap((project) => this.of(project)).sort((a, b) => b.time - a.time);
    return this.sorted;
  }

  of(project: string): ListedRun[] {
    return [...(this.byProject.get(project)?.runs.values() ?? [])].map(({ run, proposals }) => (
      { key: `${project}/${run!.run}`, run: run!, proposals, time: run!.updateTime ? timestampMs(run!.updateTime) : 0 }
    ));
  }

  private async follow(): Promise<void> {
    await this.findProjects();
    for (let each = 0; each < STREAMS; each++) void this.takeTurns();
    while (this.door.isLive && !this.ending.signal.aborted) {
      await pause(PROJECTS_EVERY_MS);
      if (!document.hidden && !this.ending.signal.aborted) await this.findProjects();
    }
  }

  private async findProjects(): Promise<void> {
    const found: string[] = [];
    let pageToken = "";
    do {
      const page = await this.door.projects.listProjects({ pageSize: 1000, pageToken });
      found.push(...page.projects.map(({ name }) => name));
      pageToken = page.nextPageToken;
    } while (pageToken);
    this.waiting.push(...found.filter((name) => !this.projects.includes(name)));
    for (const gone of this.projects.filter((name) => !found.includes(name))) this.byProject.delete(gone);
    this.projects = found;
    this.isLoaded ||= found.length === 0;
    this.touched();
  }

  private touched(): void {
    this.sorted = undefined;
    this.changed();
  }

  private async takeTurns(): Promise<void> {
    while (!this.ending.signal.aborted) {
      const project = this.waiting.shift();
      if (project === undefined) {
        await pause(500);
        continue;
      }
      try {
        await this.watch(project);
      } catch (error) {
        this.problem = words(error);
        this.changed();
      }
      if (!this.door.isLive) return;
      if (this.projects.includes(project)) this.waiting.push(project);
      await pause(200);
    }
  }

  private async watch(project: string): Promise<void> {
    const turn = new AbortController();
    const end = () => turn.abort();
    this.ending.signal.addEventListener("abort", end);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const leaveWhenQuiet = () => {
      clearTimeout(timer);
      timer = setTimeout(() => (this.waiting.length ? end() : leaveWhenQuiet()), QUIET_MS);
    };
    const fold = this.byProject.get(project) ?? new RunsFold();
    this.byProject.set(project, fold);
    try {
      for await (const message of this.door.watchRuns({ project, after: fold.cursor }, { ...WHILE_SHOWN, signal: turn.signal })) {
        this.tell(message, fold);
        fold.apply(message);
        if (message.cursor || message.event.case === "heartbeat") leaveWhenQuiet();
        if (message.event.case === "heartbeat" || !fold.isLoaded) continue;
        this.isLoaded = true;
        this.touched();
      }
    } finally {
      clearTimeout(timer);
      this.ending.signal.removeEventListener("abort", end);
    }
  }

  private tell({ event }: WatchRunsResponse, { runs }: RunsFold): void {
    if (event.case !== "changed") return;
    for (const { run, proposals } of [...event.value.created, ...event.value.updated]) {
      if (proposals > (runs.get(run!.run)?.proposals ?? 0)) announce(`The run ${run!.run} waits for a decision.`);
    }
  }
}
