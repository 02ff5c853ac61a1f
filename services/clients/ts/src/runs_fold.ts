/** The runs of a project, folded from the messages of a watch. */
import type { WatchRunsResponse } from "#protos/turnwright/runs/v1/watch_runs_pb.js";
import type { RunOverview } from "#protos/turnwright/types/v1/run_pb.js";

export class RunsFold {
  /** By alias. */
  runs = new Map<string, RunOverview>();
  /** Whether all runs of a snapshot are here. */
  isLoaded = false;
  /** Where this is, to resume a watch; empty: nowhere yet. */
  cursor = "";
  private coming = new Map<string, RunOverview>();

  apply({ event, cursor }: WatchRunsResponse): void {
    if (event.case === "snapshot") {
      if (event.value.part === 0) this.coming = new Map();
      for (const one of event.value.runs) this.coming.set(one.run!.run, one);
      if (event.value.last) {
        this.runs = this.coming;
        this.isLoaded = true;
      }
    } else if (event.case === "changed") {
      for (const gone of event.value.deleted) this.runs.delete(gone);
      for (const one of [...event.value.created, ...event.value.updated]) this.runs.set(one.run!.run, one);
    }
    if (cursor) this.cursor = cursor;
  }
}
