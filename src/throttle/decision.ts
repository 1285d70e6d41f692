/** What one limit of a policy said to a call. The numbers are of a limit of 100 calls a minute, 97 of them used. */
export interface LimitDecision {
  /** The limit as its policy writes it: `"100/min"`. */
  readonly name: string;
  /** What it counts: `"calls"` unless the policy says otherwise, e.g. `"tokens"`. */
  readonly unit: string;
  /** Whether the whole bucket shares it (`"bucket"`) or each key has its own (`"key"`). */
  readonly scope: "bucket" | "key";
  /** The most that can pass at once when nothing is used, in units: `100`. */
  readonly capacity: number;
  /** The time in which `capacity` comes back, in ms: `60000`, and `0.5` for 1 of 2,000 a second. Undefined of a limit on calls at once. */
  readonly windowMs: number | undefined;
  /** Whole units that could pass now, after this call when it was allowed: `3`. */
  readonly remaining: number;
  /** Ms until all of `capacity` is there again, if nothing else is drawn: `58200`. */
  readonly resetAfterMs: number;
  /** Ms until this limit would let the same call pass: `0` when it does now, `600` when the call costs 4. */
  readonly retryAfterMs: number;
}

/** The answer to a call that asked once and did not wait. The numbers go on from {@link LimitDecision}. */
export interface Decision {
  /** Whether the call may start now; its cost is then drawn. `false` for a call of cost 4. */
  readonly allowed: boolean;
  /** Whole units that could pass now under the limit with the least left: `3`. */
  readonly remaining: number;
  /** Ms until every limit is as if nothing had been drawn: `58200`, the longest of all. */
  readonly resetAfterMs: number;
  /** Ms until the same call is likely to pass: `0` when allowed, else the longest of all, `600`. */
  readonly retryAfterMs: number;
  /** The name of the limit that refused it: `"100/min"`; `"a pause"`, `"a cooldown"` and the like where none did. Undefined when allowed. */
  readonly limitedBy: string | undefined;
  /** Each limit in the policy's order, of the bucket and of the key. */
  readonly limits: readonly LimitDecision[];
}
