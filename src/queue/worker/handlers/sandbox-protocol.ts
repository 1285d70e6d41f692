import type { SettledCost } from "../../../throttle/call-options.ts";
import type { Slot } from "../../../throttle/slot/slot.ts";
import type { ErrorFacts } from "../../failure.ts";
import type { Job } from "../../job.ts";
import type { ParentOutcome } from "../../manage/flows.ts";

/** The environment variable that contains the URL of the handler's file. */
export const HANDLER_FILE = "SLUICE_HANDLER_FILE";

/** What a child process receives for an attempt, in addition to the job's data. */
export interface ChildAttempt {
  readonly job: Omit<Job<unknown>, "data">;
  readonly attempt: number;
  /** True if a response that the handler returns may fail the attempt. */
  readonly failOnResponse: boolean;
  /** How the job's parents ended, or why this could not be read. */
  readonly parents:
    | { readonly outcomes: readonly ParentOutcome[] }
    | { readonly failure: Pick<ChildFailure, "message" | "facts"> };
  readonly slot: Pick<Slot, "bucket" | "key" | "atMs" | "waitedMs" | "generation" | "hasLease">;
}

/** The outcome of an attempt, as the child process sends it. */
export type ChildAnswer =
  | { readonly result?: unknown }
  | { readonly isLost: true }
  | { readonly failure: ChildFailure };

/** The parts of an error that can be sent between processes. */
export interface ChildFailure {
  readonly name: string;
  readonly message: string;
  readonly stack: string | undefined;
  /** The error's code, status and causes. */
  readonly facts: ErrorFacts;
  readonly [property: string]: unknown;
}

/**
 * A message from the child process to settle or release the handler's slot. The slot itself is in the parent process.
 */
export type SlotMessage =
  | { readonly sluice: "settle"; readonly cost: SettledCost }
  | { readonly sluice: "release" };
