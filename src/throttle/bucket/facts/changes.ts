/** Changes of a bucket by hand: what they take, and how the log shows them. */
import type { KeyGiven } from "../../../core/input/key-options.ts";
import type { WhoAndWhy } from "../../../core/input/who-and-why.ts";
import { namedOf, type Key, type NamedKeys } from "../../../core/key-path.ts";
import type { PolicySource } from "../../../core/store.ts";
import type { Change, ChangeAction, SteeredState } from "../../../core/stores/insight/store.ts";

/** Names one key, or the head of a path; without it, the whole bucket is meant. */
export type KeyOptions = KeyGiven;

/** Who changes something, and why: the log of changes says it. */
export interface ByHand extends WhoAndWhy {
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
  /**
   * The change that is to be taken back; refused with `ChangedError` if another came after it, and with `CannotUndoError` if
   * it is none that can be taken back. Defaults to the last.
   */
  readonly id?: string | undefined;
}

/** What could be set by hand, before or after a change. */
export interface SteeredFacts {
  /** The policy in force: `"100/s"`. */
  readonly policy: string;
  /** Where it comes from: set by hand, of the rules, or of the code. */
  readonly source: PolicySource;
  /** For how long nothing starts, in ms; of a key, by its own pause. Infinity without an end: JSON says `"forever"`. */
  readonly pausedForMs: number;
}

/** A change of a bucket by hand or by a rules file, as the log has it. */
export interface BucketChange {
  /** `"1764166000000-0"`. Later changes have greater ones. */
  readonly id: string;
  readonly bucket: string;
  readonly queue?: undefined;
  /**
   * `"undo"` takes another back; `"expire"` is the end of a policy that was given for a time; `"rules"` is what a rules file
   * has changed, whether or not what was set by hand goes before it: `by` is then `"rules"`, and `reason` says which.
   */
  readonly action: ChangeAction;
  /** What it is about: that of an `"undo"` is what is taken back. */
  readonly subject: "policy" | "pause";
  /** When, in ms since 1970, by the clock of Redis. */
  readonly atMs: number;
  readonly by: string;
  readonly reason: string | undefined;
  /** The key that was paused or resumed; undefined is the whole bucket, unless there are `keys`. */
  readonly key: Key | undefined;
  readonly keys: NamedKeys | undefined;
  /** For how long it was to hold, in ms; undefined: until the next change. */
  readonly forMs: number | undefined;
  readonly before: SteeredFacts;
  readonly after: SteeredFacts;
  /** The id of the change that this one took back. */
  readonly undoes: string | undefined;
  /** The id of the change that took this one back. */
  readonly undoneBy: string | undefined;
  /** Why it was not made after all; or that no reply came, and then it may have been made. */
  readonly failed: string | undefined;
}

export function describeChange(change: Change): BucketChange {
  const { key, before, after, ...facts } = change;
  return {
    ...facts,
    ...namedOf(key),
    reason: change.reason,
    forMs: change.forMs,
    undoes: change.undoes,
    before: factsOf(before),
    after: factsOf(after),
  };
}

function factsOf({ policy, source, pausedForMs }: SteeredState): SteeredFacts {
  return { policy, source, pausedForMs };
}
