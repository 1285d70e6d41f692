import type { ReplicaSetup } from "./contender.ts";
import type { ContenderName } from "./contenders.ts";

/** What the benchmark tells a replica. */
export type ToReplica =
  | { readonly kind: "connect"; readonly contender: ContenderName; readonly setup: ReplicaSetup }
  | { readonly kind: "start" }
  | { readonly kind: "stop" };

/** What a replica answers; a start is not answered. */
export type FromReplica =
  | { readonly kind: "ready" }
  | { readonly kind: "connected" }
  | { readonly kind: "stopped"; readonly taken: Taken };

/** What left through one replica in one run. */
export interface Taken {
  readonly arrivalsMs: Float64Array;
  /** What the driver wrote down of each; empty where it writes nothing. */
  readonly notes: Float64Array;
}
