/** What `configure`, `pause`, `resume` and `undo` of a bucket take. */
import type { KeyGiven } from "../../core/input/key-options.ts";

/** Names one key, or the head of a path; without it, the whole bucket is meant. */
export type KeyOptions = KeyGiven;

/** Who changes something, and why: the log of changes says it. */
export interface ByHand {
  /** Who: a name, or an address. Defaults to the process: `"web-7:4321"`. */
  readonly by?: string | undefined;
  /** Why: `"the provider asked for it"`. */
  readonly reason?: string | undefined;
  /**
   * The generation that was seen, of `peek` or `status`: the change is refused with `ChangedError` if a policy, a pause or a
   * cooldown of the bucket has changed since. Defaults to none: the change is made in any case.
   */
  readonly generation?: number | undefined;
}

export interface PauseOptions extends KeyOptions, ByHand {
  /** For how long, in ms. Defaults to until it is resumed. */
  readonly forMs?: number | undefined;
}

export interface ResumeOptions extends KeyOptions, ByHand {}

export interface ConfigureOptions extends ByHand {
  /** For how long, in ms: the policy of the rules, else of the code, is in force again after that. Defaults to until it is changed. */
  readonly forMs?: number | undefined;
}

export interface UndoOptions extends ByHand {
  /** The change that is to be taken back; refused with `ChangedError` if it is not the last one. Defaults to the last. */
  readonly id?: string | undefined;
}
