/** The runs of all projects that the caller may read, as they change. */
import { timestampMs } from "@bufbuild/protobuf/wkt";
import type { WatchRunsResponse } from "@turnwright/protos/turnwright/runs/v1/watch_runs_pb.js";
import { type Run, type RunOverview } from "@turnwright/protos/turnwright/types/v1/run_pb.js";
import { announce } from "./announcer.js";
import { type Door, pause, words } from "./door.js";
import { Store } from "./store.js";

/** Streams at a time: a browser has six connections to a host without HTTP/2. With more projects each gets its turn. */
const STREAMS = 3;
/** A stream that was silent for so long makes room for another project's. */
const QUIET_MS = 4000;
const PROJECTS_EVERY_MS = 30_000;

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
  private readonly byProject = new Map<string, Map<string, ListedRun>>();
  private readonly cursors = new Map<string, string>();
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
    this.sorted ??= [...this.byProject.values()].flatMap((runs) => [...runs.values()]).sort((a, b) => b.time - a.time);
    return this.sorted;
  }

  of(project: string): ListedRun[] {
    return [...(this.byProject.get(project)?.values() ?? [])];
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
      const page = await this.door.call(this.door.projects.listProjects, { pageSize: 1000, pageToken });
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
    let coming = new Map<string, ListedRun>();
    const open = (signal: AbortSignal) => this.door.runs.watchRuns({ project, after: this.cursors.get(project) ?? "" }, { signal });
    try {
      for await (const message of this.door.resumed(open, turn.signal)) {
        coming = this.fold(project, message, coming);
        if (message.cursor) this.cursors.set(project, message.cursor);
        if (message.cursor || message.event.case === "heartbeat") leaveWhenQuiet();
      }
    } finally {
      clearTimeout(timer);
      this.ending.signal.removeEventListener("abort", end);
    }
  }

  private fold(project: string, { event }: WatchRunsResponse, coming: Map<string, ListedRun>): Map<string, ListedRun> {
    const keep = (there: Map<string, ListedRun>, { run, proposals }: RunOverview) => {
      if (!run) return;
      const time = run.updateTime ? timestampMs(run.updateTime) : 0;
      there.set(run.run, { key: `${project}/${run.run}`, run, proposals, time });
    };
    if (event.case === "snapshot") {
      if (event.value.part === 0) coming = new Map();
      for (const one of event.value.runs) keep(coming, one);
      if (!event.value.last) return coming;
      this.byProject.set(project, coming);
      this.isLoaded = true;
    } else if (event.case === "changed") {
      const there = this.byProject.get(project) ?? new Map<string, ListedRun>();
      this.byProject.set(project, there);
      for (const gone of event.value.deleted) there.delete(gone);
      for (const one of [...event.value.created, ...event.value.updated]) {
        if (one.proposals > (there.get(one.run?.run ?? "")?.proposals ?? 0)) announce(`The run ${one.run?.run} waits for a decision.`);
        keep(there, one);
      }
    } else return coming;
    this.touched();
    return coming;
  }
}
