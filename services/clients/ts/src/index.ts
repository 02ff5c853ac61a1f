/** `@turnwright/client`: docs/clients/typescript.md. */
export { Client, connect, type Decision, type RunToEndOptions, type Task } from "./client.js";
export { type Reason, TurnwrightError } from "./errors.js";
export { type Partial, RunFold, turnOf } from "./fold.js";
export { RunsFold } from "./runs_fold.js";
export type { ConnectOptions } from "./transport.js";
export type { WatchOptions, WatchRunOptions, WatchRunRequest } from "./watch.js";
