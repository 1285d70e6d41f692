/**
 * The change log: records a change, makes it, and can undo it later.
 *
 * A change of a bucket is made only after it was recorded, because a temporary policy needs the record in order to end.
 * A change of a queue or an endpoint is made even if it cannot be recorded. An operator must be able to stop a queue
 * while the Redis node that stores the log is unreachable. The process's logger then reports the missing record.
 */
import { reasonOf } from "../../describe.ts";
import { CannotUndoError, ChangedError, SluiceError, StoreUnavailableError } from "../../errors.ts";
import type { Logger } from "../../logger.ts";
import {
  describeChange,
  madeByRules,
  NOT_NOW,
  REFUSED,
  type BucketChange,
  type ChangeFate,
  type ChangeRef,
  type KeptBucketChange,
  type KeptChange,
  type KeptQueueChange,
  type NewBucketChange,
  type NewChange,
  type NewQueueChange,
  type QueueChange,
  type TenantOfSender,
} from "./changes.ts";
import type { BucketFacts, InsightStore } from "./store.ts";

/** A change to record. Omitted fields are unknown or do not apply. */
type Draft<Of, Needed extends keyof Of> = Pick<Of, Needed> & {
  readonly [Field in Exclude<keyof Of, Needed>]?: Of[Field] | undefined;
};
type BucketDraft = Draft<NewBucketChange, "bucket" | "subject" | "action" | "before" | "after">;
type QueueDraft = Draft<NewQueueChange, "queue" | "action">;

/** Makes a change. `id` identifies its record, and is undefined if the change could not be recorded. */
type Make<Made> = (id: string | undefined) => Promise<Made>;

/** The inverse of a change, or the reason why it cannot be undone. */
export type Inverse<Facts = QueueDraft["before"]> =
  | {
      readonly before: Facts;
      readonly after: Facts;
      readonly forMs?: number | undefined;
      readonly make: Make<unknown>;
    }
  | { readonly reason: string };

interface UndoAsked {
  /** The id of the change to undo. Undefined selects the last change that is still active. */
  readonly id?: string | undefined;
  readonly by?: string | undefined;
  readonly reason?: string | undefined;
  readonly generation?: number | undefined;
}

/** Selects the bucket change to undo, and describes how to undo it. */
interface UndoOfBucket {
  readonly bucket: string;
  /**
   * Returns the current generation. If the generation changes before the undo, the last change may be a different one.
   */
  readonly see: () => Promise<{ readonly generation: number }>;
  readonly inverseOf: (
    last: KeptBucketChange,
    seen: { readonly since: number; readonly nowMs: number; readonly older: KeptBucketChange[] },
  ) => Promise<Inverse<NewBucketChange["before"]>>;
}

interface UndoOfQueue {
  readonly queue: string;
  /** True to undo a change of one of the queue's endpoints, false to undo a change of the queue itself. */
  readonly isOfEndpoint: boolean;
  /** Returns the current generation. Undefined for changes without a generation. */
  readonly see?: () => Promise<{ readonly generation: number }>;
  readonly inverseOf: (last: KeptQueueChange, seen: { readonly since: number }) => Promise<Inverse>;
}

export interface ChangeLog {
  /** The author of changes for which the caller passes no `by`. */
  readonly process: string;
  /**
   * Records a change, makes it, and then records the result that `fateOf` returns.
   *
   * @throws {@link StoreUnavailableError} when a change of a bucket cannot be recorded. The change was then not made.
   */
  make<Made>(
    change: BucketDraft | QueueDraft,
    how: Make<Made>,
    fateOf?: (made: Made) => Promise<ChangeFate>,
  ): Promise<Made>;
  /** Waits until the results of a change are recorded. The process's logger reports the records that fail. */
  settle(id: string, of: object, ...noting: readonly Promise<void>[]): Promise<void>;
  /**
   * Undoes a change and returns it. `id` selects the change; without an `id`, the last change is undone. Returns
   * undefined if there is no change.
   *
   * @throws {@link CannotUndoError} when the change cannot be undone, or a later change affects the same setting.
   * @throws {@link ChangedError} when another change was made since the given generation. For a bucket, also when
   * another change was made after the change with the given id.
   */
  undo(of: UndoOfBucket, asked: UndoAsked): Promise<BucketChange | undefined>;
  undo(of: UndoOfQueue, asked: UndoAsked): Promise<QueueChange | undefined>;
  /** Removes all records that name a tenant of a webhook sender. */
  forget(of: TenantOfSender): Promise<void>;
}

/** The number of latest changes that are searched for the last active change. */
const MOST_LOOKED_AT = 1_000;
/** The most attempts at a change if other changes, such as a cooldown, are made at the same time. */
const MOST_TRIES = 5;

/**
 * Makes a change that is based on the current state. Without a given generation, it retries if another change is made
 * in between.
 *
 * @throws {@link ChangedError} when other changes were made in between at every attempt.
 */
export async function makeUnder<Seen extends { readonly generation: number }, Made>(
  generation: number | undefined,
  see: () => Promise<Seen>,
  make: (since: number, seen: Seen) => Promise<Made>,
): Promise<Made> {
  for (let time = 1; ; time++) {
    const seen = await see();
    try {
      return await make(generation ?? seen.generation, seen);
    } catch (error) {
      // An undo that names a change by its id must not be repeated, because a later change affects the same setting.
      const isStale = error instanceof ChangedError && typeof error.since === "number";
      if (!isStale || generation !== undefined || time === MOST_TRIES) throw error;
    }
  }
}

export function createChangeLog({
  store,
  logger,
  process,
}: {
  readonly store: Pick<
    InsightStore,
    "noteChange" | "amendChange" | "changes" | "endOverride" | "forgetTenant" | "bucket"
  >;
  readonly logger: Logger;
  /** The author of changes for which the caller passes no `by`. */
  readonly process: string;
}): ChangeLog {
  async function settle(id: string, of: object, ...noting: readonly Promise<void>[]) {
    await Promise.all(noting).catch((error: unknown) => {
      const reason = reasonOf(error);
      logger.warn(
        { ...of, change: id, reason },
        `Could not record in the change log how change ${id} ended.`,
      );
    });
  }

  async function amend(change: ChangeRef, fate: ChangeFate): Promise<void> {
    const { id, ...of } = change;
    await settle(id, of, store.amendChange(change, fate));
  }

  /** Records a change, and returns its id. Returns undefined if the change could not be recorded. */
  async function note(change: NewChange): Promise<string | undefined> {
    try {
      return await store.noteChange(change);
    } catch (error) {
      if (change.bucket !== undefined) throw notNoted(error);
      const { queue, endpoint, action, by } = change;
      const text = `${action} of queue "${queue}" by ${by} is made, but is not in the log of changes`;
      logger.warn({ queue, endpoint, action, by, reason: reasonOf(error) }, `${text}.`);
      return undefined;
    }
  }

  async function make<Made>(
    draft: BucketDraft | QueueDraft,
    how: Make<Made>,
    fateOf?: (made: Made) => Promise<ChangeFate>,
  ): Promise<{ made: Made; id: string | undefined }> {
    const isOfBucket = draft.bucket !== undefined;
    const isByCode = draft.by === undefined && !isOfBucket ? { isByCode: true } : {};
    const noting = note({ ...draft, by: draft.by ?? process, ...isByCode } as NewChange);
    const refOf = (id: string): ChangeRef =>
      isOfBucket ? { bucket: draft.bucket, id } : { queue: draft.queue, id };
    let made: Made;
    try {
      // A change of a queue does not wait for the log, because an operator who stops a queue wants it to stop
      // immediately.
      made = await how(isOfBucket ? await noting : undefined);
    } catch (error) {
      const id = await noting;
      if (id === undefined) throw error;
      const fates = [store.amendChange(refOf(id), { failed: failureOf(error) })];
      // If the reply was lost, the change may have been made.
      const isSure = !(error instanceof StoreUnavailableError);
      if (isOfBucket && isSure) fates.push(store.endOverride({ bucket: draft.bucket, id }));
      const { id: _id, ...of } = refOf(id);
      await settle(id, of, ...fates);
      throw error;
    }
    const id = await noting;
    // If the result of the change cannot be read, it stays unknown in the log.
    const fate = await fateOf?.(made).catch(() => undefined);
    if (fate !== undefined && id !== undefined) await amend(refOf(id), fate);
    return { made, id };
  }

  /**
   * Reads the part of the log that an undo needs. For a bucket, also reads which failed changes may still be active,
   * and the current time of the store.
   */
  async function read(of: UndoOfBucket | UndoOfQueue, id: string | undefined): Promise<Log> {
    // A change that is selected by its id is found even if many changes were made after it.
    const limit = id === undefined ? MOST_LOOKED_AT : Infinity;
    if (!("bucket" in of)) {
      const all = await store.changes({ queue: of.queue, limit });
      const own = all.filter(({ endpoint }) => (endpoint !== undefined) === of.isOfEndpoint);
      return { own, nowMs: 0, mayHold: new Set() };
    }
    const { bucket } = of;
    const [own, { nowMs, overrides }] = await Promise.all([
      store.changes({ bucket, limit }),
      store.bucket(bucket),
    ]);
    // The overrides of changes that certainly failed have been removed. A remaining override may be active although no
    // reply arrived.
    return { own, nowMs, mayHold: new Set(overrides.map((each) => each.id)) };
  }

  async function undoOnce(
    of: UndoOfBucket | UndoOfQueue,
    { id, by, reason }: UndoAsked,
    since: number,
    onFound: (id: string) => void,
  ): Promise<BucketChange | QueueChange | undefined> {
    const log = await read(of, id);
    const isOpen = (each: KeptChange): boolean => !isPassedOver(each) && !whyNot(each, log);
    const at = log.own.findIndex((each) => (id === undefined ? isOpen(each) : each.id === id));
    const last = log.own[at];
    if (id === undefined && last === undefined) return undefined;
    const target = "bucket" in of ? `bucket "${of.bucket}"` : `queue "${of.queue}"`;
    const refuse = (why: string): CannotUndoError =>
      new CannotUndoError({ change: last?.id ?? id!, of: target, reason: why });
    if (last === undefined) throw refuse(NOT_NOW.unknown);
    const why = refusalOf(last) ?? whyNot(last, log);
    if (why !== undefined) throw refuse(why);
    const later = log.own
      .slice(0, at)
      .find((each) => isOpen(each) && REFUSED[each.action] === null && isOfSame(each, last));
    if (later !== undefined) {
      if (later.bucket === undefined) throw refuse(NOT_NOW.later(later.id));
      throw new ChangedError({ bucket: later.bucket, since: last.id, generation: later.id });
    }
    onFound(last.id);
    const inverse = await inverseOf(of, last, { ...log, since, older: log.own.slice(at + 1) });
    if ("reason" in inverse) throw refuse(inverse.reason);
    const { make: how, ...facts } = inverse;
    const undoing = { ...aboutOf(last), action: "undo", undoes: last.id, by, reason, ...facts };
    const undo = await make(undoing as QueueDraft, how);
    await amend(refOf(last), { undoneBy: undo.id ?? "a change that is not in the log" });
    return describeChange({ ...last, undoneBy: undo.id });
  }

  const log = {
    process,
    make: async (
      change: BucketDraft | QueueDraft,
      how: Make<unknown>,
      fateOf?: (made: unknown) => Promise<ChangeFate>,
    ) => (await make(change, how, fateOf)).made,
    settle,
    forget: (of: TenantOfSender) => store.forgetTenant(of),
    async undo(of: UndoOfBucket | UndoOfQueue, { generation, ...asked }: UndoAsked) {
      let { id } = asked;
      const see = of.see ?? (async () => ({ generation: 0 }));
      return makeUnder(generation, see, (since) =>
        undoOnce(of, { ...asked, id }, since, (found) => {
          // A retry must undo the same change of the queue, because the last change may be a different one by then.
          if (!("bucket" in of)) id = found;
        }),
      );
    },
  };
  return log as ChangeLog;
}

interface Log {
  /** The changes, the newest first. */
  readonly own: readonly KeptChange[];
  readonly nowMs: BucketFacts["nowMs"];
  readonly mayHold: ReadonlySet<string>;
}

function inverseOf(
  of: UndoOfBucket | UndoOfQueue,
  last: KeptChange,
  seen: { since: number; nowMs: number; older: readonly KeptChange[] },
): Promise<Inverse | Inverse<NewBucketChange["before"]>> {
  return of.inverseOf(last as never, seen as never);
}

/** Returns the reason why changes of this kind can never be undone. Returns undefined if they can be undone. */
function refusalOf({ action, reason }: KeptChange): string | undefined {
  if (action === "rules" && reason !== undefined) return madeByRules(`a rules file (${reason})`);
  return REFUSED[action] ?? undefined;
}

/**
 * Returns the reason why this change cannot be undone, regardless of later changes. Returns undefined if it can be
 * undone.
 */
function whyNot(change: KeptChange, { nowMs, mayHold }: Log): string | undefined {
  const { id, undoneBy, failed } = change;
  if (undoneBy !== undefined) return NOT_NOW.undone(undoneBy);
  if (failed !== undefined && !mayHold.has(id)) return NOT_NOW.failed;
  if (change.bucket === undefined || change.subject !== "pause") return undefined;
  const isOver = [change.before, change.after].every((each) => pauseLeft(each, change, nowMs) <= 0);
  return isOver ? NOT_NOW.pauseOver : undefined;
}

/** Returns how long a pause that was recorded with a change still lasts, in ms. */
export function pauseLeft(
  { pausedForMs }: { readonly pausedForMs: number },
  { atMs }: Pick<KeptChange, "atMs">,
  nowMs: number,
): number {
  return Math.max(0, pausedForMs - (nowMs - atMs));
}

/**
 * Converts a remaining time to the option of a change. Returns undefined for an endless time and for no remaining time.
 */
export function endOf(forMs: number): number | undefined {
  return forMs > 0 && forMs !== Infinity ? forMs : undefined;
}

/** True if `undo()` without an id skips this change, because it cannot be undone or was not made by an operator. */
function isPassedOver({ action }: KeptChange): boolean {
  return action === "undo" || action === "rules" || action === "expire";
}

function refOf(change: KeptChange): ChangeRef {
  const { id } = change;
  return change.bucket === undefined ? { queue: change.queue, id } : { bucket: change.bucket, id };
}

/**
 * Returns the fields that identify the target of a change. An undo has the same target as the change that it undoes.
 */
function aboutOf(change: KeptChange) {
  const { key } = change;
  if (change.bucket !== undefined) return { bucket: change.bucket, subject: change.subject, key };
  return { queue: change.queue, endpoint: change.endpoint, key };
}

/** True if both changes affect the same bucket, pause, endpoint or settings. */
function isOfSame(one: KeptChange, other: KeptChange): boolean {
  if (one.bucket !== undefined || other.bucket !== undefined) return true;
  return (
    one.key === other.key &&
    (one.action === "set") === (other.action === "set") &&
    one.endpoint?.tenant === other.endpoint?.tenant &&
    one.endpoint?.id === other.endpoint?.id
  );
}

function failureOf(error: unknown): string {
  return error instanceof ChangedError ? error.message : reasonOf(error);
}

/** Creates a {@link StoreUnavailableError} for an error of Redis or its connection. */
function notNoted(error: unknown): unknown {
  if (error instanceof SluiceError) return error;
  const text =
    `The change could not be noted (${reasonOf(error)}), and nothing was changed. ` +
    `See that Redis runs and can be reached, and repeat it.`;
  return new StoreUnavailableError(text, error);
}
