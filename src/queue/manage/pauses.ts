import * as z from "zod";
import { assertNoUndefined } from "../../core/input/arguments.ts";
import { withForever } from "../../core/describe.ts";
import { KEY_PATH } from "../../core/input/key-options.ts";
import { decodeKey, type Key } from "../../core/key-path.ts";
import { LONGEST_MS, readOptional, wholeNumber } from "../../core/input/options.ts";
import { NOT_NOW, type KeptQueueChange } from "../../core/stores/insight/changes.ts";
import { endOf, type ChangeLog, type Inverse } from "../../core/stores/insight/change-log.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import type { KeyFilter } from "../options.ts";
import { assertChanged, BY_HAND, type QueueByHand } from "./overrides.ts";

export interface QueuePauseOptions extends KeyFilter, QueueByHand {
  /** How long the pause lasts, in ms. By default, the pause lasts until `resume()`. */
  readonly forMs?: number | undefined;
}

/** An active pause. */
export interface QueuePause {
  /** The paused key. All keys below this key are paused too. Undefined if the whole queue is paused. */
  readonly key: Key | undefined;
  /** Ms until the pause ends by itself. Infinity (in JSON `"forever"`) if only `resume()` ends it. */
  readonly forMs: number;
}

export interface QueueResumeOptions extends KeyFilter, QueueByHand {}

/**
 * Pauses and resumes a queue and its keys. `sluice.changes()` lists these changes. All methods reject with
 * StoreUnavailableError when Redis is unreachable.
 */
export interface Pauses {
  /**
   * Pauses the whole queue, or one key and all keys below it, until `resume()` or for `forMs`. Jobs can still be
   * enqueued. At most a second after this promise resolves, workers start no more of the paused jobs. Jobs that a
   * worker had fetched but not started return to their positions. Running jobs continue. A new pause of the same queue
   * or key replaces the old one.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   * @throws {@link ChangedError} when the queue was changed since the given `generation`.
   */
  pause(options?: QueuePauseOptions): Promise<void>;
  /**
   * Ends the pause of the queue, or with `key`, the pause of that key. Resuming the queue does not resume its paused
   * keys. Throws as `pause` does.
   */
  resume(options?: QueueResumeOptions): Promise<void>;
  /** Returns the active pauses: first the pause of the queue, then the pauses of keys, ordered by when they end. */
  paused(): Promise<QueuePause[]>;
}

const RESUME = z.strictObject({ key: KEY_PATH.optional(), ...BY_HAND });
const PAUSE = RESUME.extend({ forMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional() });

interface OwnedPauses {
  readonly pauses: Pauses;
  /** Returns how to undo a pause or a resume. The undo fails if another change came after the generation `since`. */
  readonly inverseOfPause: (last: KeptQueueChange, since: number) => Promise<Inverse>;
}

export function createPauses(parts: {
  readonly queue: string;
  readonly access: StoredAccess;
  readonly lanes: Pick<LaneStore, "pause" | "pauses">;
  readonly log: ChangeLog;
}): OwnedPauses {
  const { queue, access, lanes, log } = parts;

  /** Returns for how long the queue itself, or this key itself, is paused, in ms. */
  async function pausedForMs(key: string | undefined): Promise<number> {
    const pauses = await access.ask(() => lanes.pauses({ queue }));
    return pauses.find((each) => each.key === key)?.forMs ?? 0;
  }

  async function set(
    key: string | undefined,
    forMs: number,
    since: number | undefined,
  ): Promise<void> {
    await access.ask(async (stored) => {
      const changed = await lanes.pause({ queue, key, forMs, since });
      assertChanged(queue, since, changed);
      if (changed.hasPutAway) await stored.resume();
    });
  }

  async function change(
    { key, generation, ...byHand }: QueueByHand & { readonly key?: string | undefined },
    forMs: number,
  ): Promise<void> {
    // Ignores an error here, because operators must be able to resume even if the pauses cannot be read.
    const before = await pausedForMs(key).catch(() => undefined);
    const noted = {
      queue,
      action: forMs > 0 ? ("pause" as const) : ("resume" as const),
      key,
      ...byHand,
      forMs: endOf(forMs),
      before: before === undefined ? undefined : { pausedForMs: before },
      after: { pausedForMs: forMs },
    };
    await log.make(noted, () => set(key, forMs, generation));
  }

  /** Returns how to restore the earlier pause for the rest of its time. */
  async function inverseOfPause(
    { key, atMs, before, after, forMs }: KeptQueueChange,
    since: number,
  ): Promise<Inverse> {
    const goneMs = access.clock.earliestMs() - atMs;
    if (forMs !== undefined && goneMs >= forMs) return { reason: NOT_NOW.pauseOver };
    const was = before?.["pausedForMs"];
    if (typeof was !== "number") return { reason: NOT_NOW.unknownBefore };
    const leftMs = Math.max(0, Math.floor(was - goneMs));
    if (leftMs === 0 && after?.["pausedForMs"] === 0) return { reason: NOT_NOW.noPauseLeft };
    return {
      before: { pausedForMs: await pausedForMs(key) },
      after: { pausedForMs: leftMs },
      forMs: endOf(leftMs),
      make: () => set(key, leftMs, since),
    };
  }

  const pauses: Pauses = {
    async pause(given) {
      assertNoUndefined("pause()", given);
      const { forMs = Infinity, ...others } = readOptional("pause()", PAUSE, given);
      await change(others, forMs);
    },
    async resume(given) {
      assertNoUndefined("resume()", given);
      await change(readOptional("resume()", RESUME, given), 0);
    },
    async paused() {
      const pauses = await access.ask(() => lanes.pauses({ queue }));
      return pauses.map(({ key, forMs }) =>
        withForever({ key: key === undefined ? undefined : decodeKey(key), forMs }),
      );
    },
  };
  return { pauses, inverseOfPause };
}
