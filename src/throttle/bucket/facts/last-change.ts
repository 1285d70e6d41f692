/** The change by hand that `undo` takes back, and for how long what was there before it was to hold. */
import { CannotUndoError, ChangedError } from "../../../core/errors.ts";
import type { Change, InsightStore } from "../../../core/stores/insight/store.ts";

export interface LastChange {
  readonly last: Change;
  /** For how long the policy before it still holds: Infinity without an end; not above 0 if its time is over. */
  readonly policyForMs: number;
  /** For how long the pause before it would still last. */
  readonly pausedForMs: number;
}

/** Changes of one bucket among which the one to take back is looked for. */
const MOST_LOOKED_AT = 1_000;

/**
 * The last change that is still in force, of those that a person made.
 *
 * @throws {@link CannotUndoError} when an id is given, of a change that cannot be taken back.
 * @throws {@link ChangedError} when an id is given, and another change came after that one.
 */
export async function findLastChange(
  insight: InsightStore,
  bucket: string,
  id: string | undefined,
): Promise<LastChange | undefined> {
  const [changes, { nowMs, overrides }] = await Promise.all([
    insight.changes({ bucket, before: undefined, limit: MOST_LOOKED_AT }),
    insight.bucket(bucket),
  ]);
  // One that failed for certain is forgotten; another may have been made although no reply came.
  const mayHold = new Set(overrides.map(({ id }) => id));
  const at = changes.findIndex((change) => isMade(change, mayHold) && isInForce(change, nowMs));
  const last = changes[at];
  if (id !== undefined && last?.id !== id) {
    const why = whyNot(
      changes.find((each) => each.id === id),
      (each) => isMade(each, mayHold),
      nowMs,
    );
    if (why !== undefined) throw new CannotUndoError({ change: id, of: `bucket "${bucket}"`, why });
    throw new ChangedError({ bucket, since: id, generation: last?.id ?? "none" });
  }
  if (last === undefined) return undefined;
  const endsAtMs = endOfPolicyBefore(last, changes.slice(at + 1));
  const pausedForMs = pauseLeft(last.before.pausedForMs, last, nowMs);
  return { last, policyForMs: endsAtMs - nowMs, pausedForMs };
}

/** Why a change can never be taken back; undefined if only another that came after it is in the way. */
function whyNot(
  change: Change | undefined,
  wasMade: (change: Change) => boolean,
  nowMs: number,
): string | undefined {
  if (change === undefined)
    return "there is no such change in the log; sluice.changes() lists them";
  const { action, reason, undoneBy } = change;
  if (action === "rules") {
    return `a rules file made it (${reason ?? "rules"}); change that file, or set another policy by hand`;
  }
  if (action === "undo") return "it took another change back; make that one again";
  if (action === "expire") return "the time of another change was over; make that one again";
  if (undoneBy !== undefined) return `it was taken back before, by ${undoneBy}`;
  if (!wasMade(change)) return "it was not made";
  return isInForce(change, nowMs) ? undefined : "the pause has ended by itself";
}

function isMade({ id, failed }: Change, mayHold: ReadonlySet<string>): boolean {
  return failed === undefined || mayHold.has(id);
}

function isInForce(change: Change, nowMs: number): boolean {
  const { undoneBy, action, subject, before, after } = change;
  if (undoneBy !== undefined) return false;
  if (action === "undo" || action === "expire" || action === "rules") return false;
  if (subject === "policy") return true;
  // Of a pause whose time is over, nothing is left to take back.
  return [before, after].some(({ pausedForMs }) => pauseLeft(pausedForMs, change, nowMs) > 0);
}

function pauseLeft(pausedForMs: number, { atMs }: Change, nowMs: number): number {
  return Math.max(0, pausedForMs - (nowMs - atMs));
}

/** When the policy that a change took the place of was to end: by the change with which that one came. */
function endOfPolicyBefore({ before }: Change, older: readonly Change[]): number {
  const setter = older.find(
    ({ subject, action, failed }) =>
      subject === "policy" && action !== "rules" && failed === undefined,
  );
  if (before.source !== "override" || setter?.after.text !== before.text) return Infinity;
  return setter.forMs === undefined ? Infinity : setter.atMs + setter.forMs;
}

/** A time that is left, as the option of a change: undefined for one without an end. */
export function endOf(forMs: number): number | undefined {
  return forMs > 0 && forMs !== Infinity ? forMs : undefined;
}
