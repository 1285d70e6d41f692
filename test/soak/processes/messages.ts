import type { Answer, Call, Moment } from "../records.ts";

/** The settings of each process that uses Sluice, passed as JSON at its start. */
export interface ActorSettings {
  readonly redis: string;
  /** The downstream's URL. */
  readonly url: string;
  readonly perSecond: number;
  readonly burst: number;
  /** What happens to the process's calls while Redis does not answer. */
  readonly onStoreDown: "wait" | "refuse";
}

/** A message to a process; workers get none, and end by SIGTERM. */
export type ToActor = { readonly kind: "go" } | { readonly kind: "rest" };

/** A process's active resources by kind, and its number of listeners. */
export type Resources = Readonly<Record<string, number>>;

export type FromReplica =
  | { readonly kind: "ready"; readonly resources: Resources }
  | {
      readonly kind: "rested";
      readonly resources: Resources;
      /** How often callers got each error. */
      readonly errors: Readonly<Record<string, number>>;
    };

export type FromWorker =
  | { readonly kind: "ready" }
  /** It stood still, on the machine's clock: it was stopped, or the machine was busy. */
  | { readonly kind: "stood"; readonly fromMs: number; readonly toMs: number };

export type FromProducer =
  | { readonly kind: "ready" }
  | { readonly kind: "stored"; readonly jobs: readonly number[] }
  | {
      readonly kind: "rested";
      /** How often `enqueue` was refused. */
      readonly refused: number;
      /** The messages of all other errors. */
      readonly errors: readonly string[];
    };

export type ToDownstream =
  | { readonly kind: "answer"; readonly as: Answer }
  | { readonly kind: "report" };

export type FromDownstream =
  | { readonly kind: "listening"; readonly url: string }
  | { readonly kind: "answering"; readonly as: Answer }
  | {
      readonly kind: "report";
      readonly calls: readonly Call[];
      readonly clock: Moment;
      readonly isAsked: boolean;
    };
