import type { Answer, Call, Moment } from "../records.ts";

/** What all processes that go through Sluice are told when they start, as JSON. */
export interface ActorSettings {
  readonly redis: string;
  /** Where the downstream is. */
  readonly url: string;
  readonly perSecond: number;
  readonly burst: number;
  /** What becomes of a replica's calls while Redis does not answer. */
  readonly onStoreDown: "wait" | "refuse";
}

/** What the soak tells a process; workers end by SIGTERM. */
export type ToActor = { readonly kind: "go" } | { readonly kind: "rest" };

/** What a process holds that keeps it alive, by kind, and how many listeners there are. */
export type Resources = Readonly<Record<string, number>>;

export type FromReplica =
  | { readonly kind: "ready"; readonly resources: Resources }
  | {
      readonly kind: "rested";
      readonly resources: Resources;
      /** What callers met, how often. */
      readonly errors: Readonly<Record<string, number>>;
    };

export type FromWorker =
  | { readonly kind: "ready" }
  /** It stood still, on the machine's clock: stopped, or held up by a busy machine. */
  | { readonly kind: "stood"; readonly fromMs: number; readonly toMs: number };

export type FromProducer =
  | { readonly kind: "ready" }
  | { readonly kind: "stored"; readonly jobs: readonly number[] }
  | {
      readonly kind: "rested";
      /** How often `enqueue` was refused. */
      readonly refused: number;
      /** Messages of all else that it met. */
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
