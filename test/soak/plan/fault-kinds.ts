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
}

/** How long a job stays with a silent worker. */
export const LOCK_MS = 2_000;

export const FAULT_KINDS = {
  "worker killed": {
    lengthMs: [500, 2_000],
    target: "worker",
    endsLocks: "target",
    says: "kill -9; another starts in its place at the end",
  },
  "worker stopped": {
    lengthMs: [1.5 * LOCK_MS, 2.5 * LOCK_MS],
    target: "worker",
    endsLocks: "target",
    says: "SIGSTOP, for longer than its locks; SIGCONT",
  },
  "replica stopped": {
    lengthMs: [500, 5_000],
    target: "replica",
    endsLocks: "none",
    says: "SIGSTOP; SIGCONT",
  },
  "cut before a request": {
    lengthMs: [10, 100],
    endsLocks: "all",
    says: "requests never reach Redis; all connections break",
  },
  "cut after a request": {
    lengthMs: [10, 100],
    endsLocks: "all",
    says: "Redis obeys, its replies are lost; all connections break",
  },
  "wire stalled": {
    lengthMs: [300, 4_000],
    endsLocks: "all",
    says: "nothing passes; then all connections break",
  },
  "half-open": {
    lengthMs: [1_000, 4_000],
    endsLocks: "all",
    says: "connections are dead, unnoticed until the end; new ones work",
  },
  "replies reset": {
    lengthMs: [10, 200],
    endsLocks: "all",
    says: "connections are reset in the middle of replies",
  },
  "bytes sliced": { lengthMs: [500, 3_000], endsLocks: "none", says: "single bytes" },
  latency: { lengthMs: [1_000, 4_000], endsLocks: "none", says: "replies come 200 ms late" },
  "Redis restarted": {
    lengthMs: [10, 1_500],
    endsLocks: "all",
    says: "kill -9; starts again with its append-only log, synced on every write",
  },
  "SCRIPT FLUSH": { lengthMs: [200, 2_000], endsLocks: "all", says: "every 20 ms" },
  "CLIENT KILL": { lengthMs: [10, 1_000], endsLocks: "all", says: "all clients, every 200 ms" },
  READONLY: {
    lengthMs: [200, 3_000],
    endsLocks: "all",
    says: "Redis is a replica for a while",
  },
  "memory full": {
    lengthMs: [200, 3_000],
    endsLocks: "all",
    says: "no memory left, and no eviction",
  },
  "429 storm": {
    lengthMs: [300, 1_500],
    endsLocks: "none",
    says: "the downstream refuses every call, Retry-After: 2",
  },
  "downstream hangs": { lengthMs: [500, 3_000], endsLocks: "none", says: "no call is answered" },
  "downstream drips": {
    lengthMs: [500, 3_000],
    endsLocks: "none",
    says: "answers come byte by byte",
  },
  "downstream resets": {
    lengthMs: [200, 2_000],
    endsLocks: "none",
    says: "each call's connection is reset",
  },
  "rate changed": {
    lengthMs: [500, 4_000],
    endsLocks: "none",
    says: "configure, to between half and twice the rate; then back to the code's",
  },
  "bucket paused": { lengthMs: [300, 3_000], endsLocks: "none", says: "pause; resume" },
} as const satisfies Readonly<Record<string, FaultKind>>;

export type FaultName = keyof typeof FAULT_KINDS;

export function kindOf(name: FaultName): FaultKind {
  return FAULT_KINDS[name];
}
