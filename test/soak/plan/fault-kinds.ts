/** A kind of fault, and its possible effects. */
interface FaultKind {
  /** How long it lasts, in ms: shortest, longest. */
  readonly lengthMs: readonly [number, number];
  /** Strikes one process of this kind, if it does not strike all. */
  readonly target?: "worker" | "replica";
  /**
   * Whose jobs' locks can end because of it, so that the jobs are done again: those of the process that it strikes, or
   * of all workers, because Redis did not get or did not accept their renewals.
   */
  readonly endsLocks: "target" | "all" | "none";
  readonly says: string;
  /** Whether no job may start while it lasts; else some have to. */
  readonly stopsJobs: boolean;
}

/** How long a job stays with a silent worker. */
export const LOCK_MS = 2_000;

export const FAULT_KINDS = {
  "worker killed": {
    lengthMs: [500, 2_000],
    target: "worker",
    endsLocks: "target",
    stopsJobs: false,
    says: "kill -9; another starts in its place at the end",
  },
  "worker stopped": {
    lengthMs: [1.5 * LOCK_MS, 2.5 * LOCK_MS],
    target: "worker",
    endsLocks: "target",
    stopsJobs: false,
    says: "SIGSTOP, for longer than its locks; SIGCONT",
  },
  "worker closed": {
    lengthMs: [500, 2_000],
    target: "worker",
    endsLocks: "none",
    stopsJobs: false,
    says: "SIGTERM; another starts in its place at the end",
  },
  "all workers closed": {
    lengthMs: [500, 1_500],
    endsLocks: "none",
    stopsJobs: true,
    says: "SIGTERM to each at once; others start in their places at the end",
  },
  "all workers killed": {
    lengthMs: [500, 1_500],
    endsLocks: "all",
    stopsJobs: true,
    says: "kill -9; others start in their places at the end",
  },
  "jobs removed": {
    lengthMs: [200, 1_000],
    endsLocks: "none",
    stopsJobs: false,
    says: "by BullMQ's remove, one after another",
  },
  "jobs cleaned": {
    lengthMs: [200, 1_000],
    endsLocks: "none",
    stopsJobs: false,
    says: "by BullMQ's clean, 20 at a time",
  },
  "jobs promoted": {
    lengthMs: [200, 1_000],
    endsLocks: "none",
    stopsJobs: false,
    says: "by BullMQ's promote, 20 at a time",
  },
  "queue drained": {
    lengthMs: [10, 100],
    endsLocks: "none",
    stopsJobs: false,
    says: "by BullMQ's drain, delayed jobs too",
  },
  "queue obliterated": {
    lengthMs: [10, 100],
    endsLocks: "none",
    stopsJobs: true,
    says: "by BullMQ's obliterate, which pauses it first",
  },
  "weights changed": {
    lengthMs: [2_000, 4_000],
    endsLocks: "none",
    stopsJobs: false,
    says: "one tenant's, from 1 to 3; then back",
  },
  "replica stopped": {
    lengthMs: [500, 5_000],
    target: "replica",
    endsLocks: "none",
    stopsJobs: false,
    says: "SIGSTOP; SIGCONT",
  },
  "cut before a request": {
    lengthMs: [10, 100],
    endsLocks: "all",
    stopsJobs: true,
    says: "requests never reach Redis; all connections break",
  },
  "cut after a request": {
    lengthMs: [10, 100],
    endsLocks: "all",
    stopsJobs: true,
    says: "Redis obeys, its replies are lost; all connections break",
  },
  "wire stalled": {
    lengthMs: [300, 4_000],
    endsLocks: "all",
    stopsJobs: true,
    says: "nothing passes; then all connections break",
  },
  "half-open": {
    lengthMs: [1_000, 4_000],
    endsLocks: "all",
    stopsJobs: true,
    says: "connections are dead, unnoticed until the end; new ones work",
  },
  "replies reset": {
    lengthMs: [10, 200],
    endsLocks: "all",
    stopsJobs: true,
    says: "connections are reset in the middle of replies",
  },
  "bytes sliced": {
    lengthMs: [500, 3_000],
    endsLocks: "none",
    stopsJobs: true,
    says: "single bytes",
  },
  latency: {
    lengthMs: [1_000, 4_000],
    endsLocks: "none",
    stopsJobs: true,
    says: "replies come 200 ms late",
  },
  "Redis restarted": {
    lengthMs: [10, 1_500],
    endsLocks: "all",
    stopsJobs: true,
    says: "kill -9; starts again with its append-only log, synced on every write",
  },
  "SCRIPT FLUSH": {
    lengthMs: [200, 2_000],
    endsLocks: "all",
    stopsJobs: true,
    says: "every 20 ms",
  },
  "CLIENT KILL": {
    lengthMs: [10, 1_000],
    endsLocks: "all",
    stopsJobs: true,
    says: "all clients, every 200 ms",
  },
  READONLY: {
    lengthMs: [200, 3_000],
    endsLocks: "all",
    stopsJobs: true,
    says: "Redis is a replica for a while",
  },
  "memory full": {
    lengthMs: [200, 3_000],
    endsLocks: "all",
    stopsJobs: true,
    says: "no memory left, and no eviction",
  },
  "429 storm": {
    lengthMs: [300, 1_500],
    endsLocks: "none",
    stopsJobs: false,
    says: "the downstream refuses every call, Retry-After: 2",
  },
  "downstream hangs": {
    lengthMs: [500, 3_000],
    endsLocks: "none",
    stopsJobs: false,
    says: "no call is answered",
  },
  "downstream drips": {
    lengthMs: [500, 3_000],
    endsLocks: "none",
    stopsJobs: false,
    says: "answers come byte by byte",
  },
  "downstream resets": {
    lengthMs: [200, 2_000],
    endsLocks: "none",
    stopsJobs: false,
    says: "each call's connection is reset",
  },
  "rate changed": {
    lengthMs: [500, 4_000],
    endsLocks: "none",
    stopsJobs: false,
    says: "configure, to between half and twice the rate; then back to the code's",
  },
  "bucket paused": {
    lengthMs: [300, 3_000],
    endsLocks: "none",
    stopsJobs: false,
    says: "pause; resume",
  },
} as const satisfies Readonly<Record<string, FaultKind>>;

export type FaultName = keyof typeof FAULT_KINDS;

export function kindOf(name: FaultName): FaultKind {
  return FAULT_KINDS[name];
}
