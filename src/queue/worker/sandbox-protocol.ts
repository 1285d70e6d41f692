import type { SettledCost } from "../../throttle/call-options.ts";
import type { Slot } from "../../throttle/slot/slot.ts";
import type { Job } from "../job.ts";

/** The variable of the environment that tells a child process which file the handler is in. */
export const HANDLER_FILE = "SLUICE_HANDLER_FILE";

/** What a child process is told of an attempt, beside the job's data. */
export interface ChildAttempt {
  readonly job: Omit<Job<unknown>, "data">;
  readonly attempt: number;
  readonly slot: Pick<Slot, "bucket" | "key" | "atMs" | "waitedMs" | "generation" | "hasLease">;
}

/** What came of it. */
export type ChildAnswer =
  | { readonly result?: unknown }
  | { readonly isLost: true }
  | { readonly failure: ChildFailure };

/** An error, as far as it can be sent. */
export interface ChildFailure {
  readonly name: string;
  readonly message: string;
  readonly stack: string | undefined;
  readonly [property: string]: unknown;
}

/** What a handler does with its slot; the slot itself is with the parent. */
export type SlotMessage =
  | { readonly sluice: "settle"; readonly cost: SettledCost }
  | { readonly sluice: "release" };
