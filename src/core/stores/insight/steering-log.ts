/**
 * Notes what operators change of queues and endpoints. Unlike a change of a bucket, one is made also where it cannot be
 * noted: who stops a queue in an outage must not need the node that has the log, and nothing ends by the log, as an override
 * does. It is heard of in the process's log then.
 */
import { reasonOf } from "../../describe.ts";
import { CannotUndoError } from "../../errors.ts";
import type { Logger } from "../../logger.ts";
import type {
  NewSteering,
  Steering,
  SteeringFate,
  SteeringStore,
  TenantOfSender,
} from "./steering.ts";

/** A change to note: what is left out is not known, or there is nothing. */
type Noted = Pick<NewSteering, "queue" | "action"> & {
  readonly [Field in Exclude<keyof NewSteering, "queue" | "action">]?:
    | NewSteering[Field]
    | undefined;
};

export interface SteeringLog {
  /** Who makes a change, unless that is said. */
  readonly process: string;
  /** Makes a change and notes it meanwhile, and then what `fateOf` says came of it. */
  make<Made>(
    change: Noted,
    how: () => Promise<Made>,
    fateOf?: (made: Made) => Promise<SteeringFate>,
  ): Promise<Made>;
  /** Removes what names a tenant of a sender of webhooks. */
  forget(of: TenantOfSender): Promise<void>;
  /**
   * Takes back a change of a queue, or of endpoints: the one of this id, or the last; undefined if there is none.
   *
   * @throws {@link CannotUndoError} when it cannot be taken back, or another came after it.
   */
  undo(
    asked: UndoAsked,
    inverseOf: (last: Steering) => Inverse | Promise<Inverse>,
  ): Promise<Steering | undefined>;
}

interface UndoAsked {
  readonly queue: string;
  readonly isOfEndpoint: boolean;
  readonly id: string | undefined;
  readonly by: string | undefined;
  readonly reason: string | undefined;
}

/** What takes a change back; or why nothing does any more. */
export type Inverse =
  | (Pick<Noted, "before" | "after" | "forMs"> & { readonly make: () => Promise<unknown> })
  | { readonly why: string };

/** Changes of one queue among which the one to take back is looked for. */
const MOST_LOOKED_AT = 1_000;

/** Why others than these cannot be taken back. */
const FINAL: Readonly<Partial<Record<NewSteering["action"], string>>> = {
  drain: "the jobs are gone; who has their data can enqueue them again",
  remove: "what was removed is gone",
  purge: "the dead letters are gone",
  replay: "what it put back may have run since",
  reschedule: "the times that the jobs had are not kept; reschedule them again",
  put: "not all that the endpoint was is kept; put it again",
  setLimits: "set the limits again; the change says what they were",
  recover: "the messages may have been sent since",
  rotateSecret: "the old secret is not put back; rotate it again",
  rules: "it came from a rules file; change that",
  undo: "it took another change back; make that one again",
};

export function createSteeringLog({
  store,
  logger,
  process,
}: {
  readonly store: SteeringStore;
  readonly logger: Logger;
  /** Who makes a change, unless that is said. */
  readonly process: string;
}): SteeringLog {
  /** Of a change that is not noted, there is no id. */
  async function note(change: NewSteering): Promise<string | undefined> {
    try {
      return await store.noteSteering(change);
    } catch (error) {
      const { queue, endpoint, action, by } = change;
      const text = `${action} of queue "${queue}" by ${by} is made, but is not in the log of changes`;
      logger.warn({ queue, endpoint, action, by, reason: reasonOf(error) }, `${text}.`);
      return undefined;
    }
  }

  async function amend(queue: string, id: string | undefined, fate: SteeringFate): Promise<void> {
    if (id === undefined) return;
    await store.amendSteering({ queue, id }, fate).catch((error: unknown) => {
      const reason = reasonOf(error);
      logger.warn({ queue, change: id, reason }, `What became of change ${id} was not noted.`);
    });
  }

  async function make<Made>(
    given: Noted,
    how: () => Promise<Made>,
    fateOf?: (made: Made) => Promise<SteeringFate>,
  ): Promise<{ made: Made; id: string | undefined }> {
    const { queue, action, endpoint, key, filter, by, reason, forMs } = given;
    const { before, after, undoes, was } = given;
    const who = by === undefined ? { by: process, isByCode: true } : { by };
    const about = { queue, action, endpoint, key, filter, ...who, reason, forMs };
    // It does not wait for the log: who stops a queue wants it to stop.
    const noting = note({ ...about, before, after, undoes, was });
    let made: Made;
    try {
      made = await how();
    } catch (error) {
      await amend(queue, await noting, { failed: reasonOf(error) });
      throw error;
    }
    const id = await noting;
    // What cannot be looked at afterwards stays unknown.
    const fate = await fateOf?.(made).catch(() => undefined);
    if (fate !== undefined) await amend(queue, id, fate);
    return { made, id };
  }

  return {
    process,
    make: async (change, how, fateOf) => (await make(change, how, fateOf)).made,
    forget: (of) => store.forgetTenant(of),
    async undo({ queue, isOfEndpoint, id, by, reason }, inverseOf) {
      // One that is named is found however many came after it.
      const limit = id === undefined ? MOST_LOOKED_AT : Infinity;
      const all = await store.steerings({ queue, before: undefined, limit });
      const own = all.filter(({ endpoint }) => (endpoint !== undefined) === isOfEndpoint);
      const isOpen = ({ action, undoneBy, failed }: Steering): boolean =>
        !isPassedOver(action) && undoneBy === undefined && failed === undefined;
      const at = own.findIndex((each) => (id === undefined ? isOpen(each) : each.id === id));
      const last = own[at];
      if (id === undefined && last === undefined) return undefined;
      const refuse = (why: string): CannotUndoError =>
        new CannotUndoError({ change: last?.id ?? id!, of: `queue "${queue}"`, why });
      if (last === undefined) {
        throw refuse("there is no such change in the log; sluice.changes() lists them");
      }
      const final = FINAL[last.action];
      if (final !== undefined) throw refuse(final);
      if (last.undoneBy !== undefined)
        throw refuse(`it was taken back before, by ${last.undoneBy}`);
      if (last.failed !== undefined) throw refuse("it was not made");
      const later = own
        .slice(0, at)
        .find((each) => isOpen(each) && !(each.action in FINAL) && isOfSame(each, last));
      if (later !== undefined) throw refuse(`${later.id} came after it; take that one back first`);
      const inverse = await inverseOf(last);
      if ("why" in inverse) throw refuse(inverse.why);
      const { make: how, ...facts } = inverse;
      const { endpoint, key } = last;
      const undoing = { queue, action: "undo", endpoint, key, undoes: last.id } as const;
      const undo = await make({ ...undoing, by, reason, ...facts }, how);
      await amend(queue, last.id, { undoneBy: undo.id ?? "a change that is not in the log" });
      return { ...last, undoneBy: undo.id };
    },
  };
}

/** What is undone in another way than by `undo()` is not the last change of anything. */
function isPassedOver(action: Steering["action"]): boolean {
  return action === "undo" || action === "rules";
}

/** Whether both change the same pause, or the same endpoint, or settings. */
function isOfSame(one: Steering, other: Steering): boolean {
  const { endpoint, key } = one;
  return (
    key === other.key &&
    (one.action === "set") === (other.action === "set") &&
    endpoint?.tenant === other.endpoint?.tenant &&
    endpoint?.id === other.endpoint?.id
  );
}
