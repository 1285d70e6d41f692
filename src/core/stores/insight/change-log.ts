/**
 * The log of changes: notes a change, makes it, and takes it back by its inverse.
 *
 * A change of a bucket is made only once it is noted, since a policy for a time ends by its note. One of a queue or an
 * endpoint is made also where it cannot be noted: an operator who stops a queue in an outage must not need the node that has
 * the log. The process's own log reports it then.
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

/** A change to note: what is left out is not known, or there is nothing. */
type Draft<Of, Needed extends keyof Of> = Pick<Of, Needed> & {
  readonly [Field in Exclude<keyof Of, Needed>]?: Of[Field] | undefined;
};
type BucketDraft = Draft<NewBucketChange, "bucket" | "subject" | "action" | "before" | "after">;
type QueueDraft = Draft<NewQueueChange, "queue" | "action">;

/** Makes a change under the id of its note; undefined where it could not be noted. */
type Make<Made> = (id: string | undefined) => Promise<Made>;

/** How to undo a change, or the reason why it cannot be undone. */
export type Inverse<Facts = QueueDraft["before"]> =
  | {
      readonly before: Facts;
      readonly after: Facts;
      readonly forMs?: number | undefined;
      readonly make: Make<unknown>;
    }
  | { readonly reason: string };

interface UndoAsked {
  /** The change; undefined is the last one that is in force. */
  readonly id?: string | undefined;
  readonly by?: string | undefined;
  readonly reason?: string | undefined;
  readonly generation?: number | undefined;
}

/** Selects the change to undo, and says how to undo it. */
interface UndoOfBucket {
  readonly bucket: string;
  /** The generation to begin with: if another comes, the last change may be another one. */
  readonly see: () => Promise<{ readonly generation: number }>;
  readonly inverseOf: (
    last: KeptBucketChange,
    seen: { readonly since: number; readonly nowMs: number; readonly older: KeptBucketChange[] },
  ) => Promise<Inverse<NewBucketChange["before"]>>;
}

interface UndoOfQueue {
  readonly queue: string;
  /** Whether the last change of the queue's endpoints is meant, and not that of the queue. */
  readonly isOfEndpoint: boolean;
  /** Left out where changes have no generation. */
  readonly see?: () => Promise<{ readonly generation: number }>;
  readonly inverseOf: (last: KeptQueueChange, seen: { readonly since: number }) => Promise<Inverse>;
}

export interface ChangeLog {
  /** Who makes a change, unless that is said. */
  readonly process: string;
  /**
   * Notes a change and makes it, and then notes what `fateOf` says came of it.
   *
   * @throws {@link StoreUnavailableError} when a change of a bucket cannot be noted; it was not made.
   */
  make<Made>(
    change: BucketDraft | QueueDraft,
    how: Make<Made>,
    fateOf?: (made: Made) => Promise<ChangeFate>,
  ): Promise<Made>;
  /** Waits for notes about a change that was made; the process's log reports those that fail. */
  settle(id: string, of: object, ...noting: readonly Promise<void>[]): Promise<void>;
  /**
   * Takes a change back and returns it: the one of this id, or the last; undefined if there is none.
   *
   * @throws {@link CannotUndoError} when it cannot be taken back, or another came after it.
   * @throws {@link ChangedError} when another change came since the generation that was given; of a bucket also when one
   * came after the change of the id that was given.
   */
  undo(of: UndoOfBucket, asked: UndoAsked): Promise<BucketChange | undefined>;
  undo(of: UndoOfQueue, asked: UndoAsked): Promise<QueueChange | undefined>;
  /** Removes what names a tenant of a sender of webhooks. */
  forget(of: TenantOfSender): Promise<void>;
}

/** Changes among which the last one is looked for. */
const MOST_LOOKED_AT = 1_000;
/** How often a change is retried after another change, such as a cooldown, came in between. */
const MOST_TRIES = 5;

/**
 * Changes the current state. Without a given generation, it retries if another change comes in between.
 *
 * @throws {@link ChangedError} when others came in between each time.
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
  /** Who makes a change, unless that is said. */
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
      // A queue does not wait for the log: an operator who stops it wants it to stop.
      made = await how(isOfBucket ? await noting : undefined);
    } catch (error) {
      const id = await noting;
      if (id === undefined) throw error;
      const fates = [store.amendChange(refOf(id), { failed: failureOf(error) })];
      // A reply that was lost may have been of a change that was made.
      const isSure = !(error instanceof StoreUnavailableError);
      if (isOfBucket && isSure) fates.push(store.endOverride({ bucket: draft.bucket, id }));
      const { id: _id, ...of } = refOf(id);
      await settle(id, of, ...fates);
      throw error;
    }
    const id = await noting;
    // What cannot be looked at afterwards stays unknown.
    const fate = await fateOf?.(made).catch(() => undefined);
    if (fate !== undefined && id !== undefined) await amend(refOf(id), fate);
    return { made, id };
  }

  /** What of the log counts for an undo; and of which changes of it a reply is known to be missing, or the time over. */
  async function read(of: UndoOfBucket | UndoOfQueue, id: string | undefined): Promise<Log> {
    // One that is named is found however many came after it.
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
    // One that failed for certain is forgotten; another may have been made although no reply came.
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
          // The last change of a queue may be another's when it is tried again.
          if (!("bucket" in of)) id = found;
        }),
      );
    },
  };
  return log as ChangeLog;
}

interface Log {
  /** The newest first. */
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

/** Why no change of this kind can be undone. */
function refusalOf({ action, reason }: KeptChange): string | undefined {
  if (action === "rules" && reason !== undefined) return madeByRules(`a rules file (${reason})`);
  return REFUSED[action] ?? undefined;
}

/** Why a change cannot be taken back, whatever came after it. */
function whyNot(change: KeptChange, { nowMs, mayHold }: Log): string | undefined {
  const { id, undoneBy, failed } = change;
  if (undoneBy !== undefined) return NOT_NOW.undone(undoneBy);
  if (failed !== undefined && !mayHold.has(id)) return NOT_NOW.failed;
  if (change.bucket === undefined || change.subject === "policy") return undefined;
  const isOver = [change.before, change.after].every((each) => pauseLeft(each, change, nowMs) <= 0);
  return isOver ? NOT_NOW.pauseOver : undefined;
}

/** For how long a pause that was noted with a change still holds. */
export function pauseLeft(
  { pausedForMs }: { readonly pausedForMs: number },
  { atMs }: Pick<KeptChange, "atMs">,
  nowMs: number,
): number {
  return Math.max(0, pausedForMs - (nowMs - atMs));
}

/** A time that is left, as the option of a change: undefined for one without an end, and for none. */
export function endOf(forMs: number): number | undefined {
  return forMs > 0 && forMs !== Infinity ? forMs : undefined;
}

/** What is undone in another way than by `undo()` is not the last change of anything. */
function isPassedOver({ action }: KeptChange): boolean {
  return action === "undo" || action === "rules" || action === "expire";
}

function refOf(change: KeptChange): ChangeRef {
  const { id } = change;
  return change.bucket === undefined ? { queue: change.queue, id } : { bucket: change.bucket, id };
}

/** What an undo is about: the same as the change that it takes back. */
function aboutOf(change: KeptChange) {
  const { key } = change;
  if (change.bucket !== undefined) return { bucket: change.bucket, subject: change.subject, key };
  return { queue: change.queue, endpoint: change.endpoint, key };
}

/** Whether both change the same bucket, pause, endpoint, or settings. */
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

/** A {@link StoreUnavailableError} for whatever Redis or its connection says. */
function notNoted(error: unknown): unknown {
  if (error instanceof SluiceError) return error;
  const text =
    `The change could not be noted (${reasonOf(error)}), and nothing was changed. ` +
    `See that Redis runs and can be reached, and repeat it.`;
  return new StoreUnavailableError(text, error);
}
