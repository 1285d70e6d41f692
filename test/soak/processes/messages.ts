import type { Answer, Call, Moment } from "../records.ts";
import type { TenantJob } from "../tenants/tenants.ts";

/** The settings of each process that uses Sluice, passed as JSON at its start. */
export interface ActorSettings {
  readonly redis: string;
  /** The downstream's URL. */
  readonly url: string;
  readonly perSecond: number;
  readonly burst: number;
  /** The URL of the downstream that the tenants' jobs call. */
  readonly tenantsUrl: string;
  /** The weight of the tenant whose weight changes. */
  readonly gold: number;
  /** What happens to the process's calls while Redis does not answer. */
  readonly onStoreDown: "wait" | "refuse";
}

/** A message to a process; workers get only weights, and end by SIGTERM. */
export type ToActor =
  | { readonly kind: "go" }
  | { readonly kind: "rest" }
  | { readonly kind: "weigh"; readonly gold: number };

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

/** Jobs of one tenant that Redis has confirmed together; times are on the machine's clock. */
export interface StoredJobs {
  readonly askedMs: number;
  readonly storedMs: number;
  readonly isNewcomer: boolean;
  readonly jobs: readonly TenantJob[];
  /** Their ids in the queue, in the same order. */
  readonly ids: readonly string[];
}

export type FromTenants =
  | { readonly kind: "ready" }
  | { readonly kind: "stored"; readonly stored: readonly StoredJobs[] }
  | Extract<FromProducer, { kind: "rested" }>;

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
