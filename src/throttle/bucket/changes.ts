import { namedOf, type Key, type NamedKeys } from "../../core/key-path.ts";
import type { PolicySource } from "../../core/store.ts";
import type { Change, ChangeAction, SteeredState } from "../../core/stores/insight/store.ts";

/** What could be set by hand, before or after a change. */
export interface SteeredFacts {
  /** The policy in force: `"100/s"`. */
  readonly policy: string;
  /** Where it comes from: set by hand, of the rules, or of the code. */
  readonly source: PolicySource;
  /** For how long nothing starts, in ms; of a key, by its own pause. Infinity without an end: JSON says `"forever"`. */
  readonly pausedForMs: number;
}

/** A change of a bucket by hand, as the log has it. */
export interface BucketChange {
  /** `"1764166000000-0"`. Later changes have greater ones. */
  readonly id: string;
  readonly bucket: string;
  /** `"undo"` takes another back; `"expire"` is the end of a policy that was given for a time. */
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
