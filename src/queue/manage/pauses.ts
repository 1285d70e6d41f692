import * as z from "zod";
import { refuseUndefined } from "../../core/input/arguments.ts";
import { sayEndless } from "../../core/describe.ts";
import { KEY_PATH } from "../../core/input/key-options.ts";
import { keyOfText, type Key } from "../../core/key-path.ts";
import { LONGEST_MS, readOptions, wholeNumber } from "../../core/input/options.ts";
import type { LaneStore } from "../../core/stores/queue/store.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import { readOfKey, type OfKey } from "../options.ts";

export interface QueuePauseOptions extends OfKey {
  /** For how long, in ms. Defaults to until it is resumed. */
  readonly forMs?: number | undefined;
}

/** A pause that holds. */
export interface QueuePause {
  /** The key that is paused, with all below it; undefined for the whole queue. */
  readonly key: Key | undefined;
  /** Ms until it ends by itself; Infinity if only `resume()` ends it; JSON says `"forever"`. */
  readonly forMs: number;
}

/** Pauses of a queue, and of its keys. All reject with StoreUnavailableError when Redis is away. */
export interface Pauses {
  /**
   * Lets no job start, of the whole queue or of one key and all below it, until `resume()` or for `forMs`; jobs can be enqueued
   * meanwhile. Within a second after it resolves, no worker starts any more; what workers had fetched and not
   * started goes back to its place. Jobs that run go on. A later pause of the same takes the place of an earlier one.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   */
  pause(options?: QueuePauseOptions): Promise<void>;
  /** Ends a pause of the queue; with a key, that key's own. Each is ended by itself. Throws as `pause` does. */
  resume(options?: OfKey): Promise<void>;
  /** Which pauses hold: the queue's own first, then those of keys, by when they end. */
  paused(): Promise<QueuePause[]>;
}

const PAUSE = z.strictObject({
  key: KEY_PATH.optional(),
  forMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
});

export function createPauses(parts: {
  readonly queue: string;
  readonly access: StoredAccess;
  readonly lanes: Pick<LaneStore, "pause" | "resume" | "pauses">;
  /** Has an idle worker look for jobs at once. */
  readonly wakeIdle: () => Promise<void>;
}): Pauses {
  const { queue, access, lanes, wakeIdle } = parts;
  return {
    async pause(given = {}) {
      refuseUndefined("pause()", given);
      const { key, forMs = Infinity } = readOptions("pause()", PAUSE, given);
      await access.ask(() => lanes.pause(queue, { key, forMs }));
    },
    async resume(given = {}) {
      refuseUndefined("resume()", given);
      const { key } = readOfKey("resume()", given);
      await access.ask(async (stored) => {
        if (key !== undefined) return lanes.resume(queue, key);
        await stored.resume();
        // Without it, as while the memory of Redis is full, an idle worker looks by itself within five seconds.
        await wakeIdle().catch(() => undefined);
      });
    },
    async paused() {
      const pauses = await access.ask(() => lanes.pauses(queue));
      return pauses.map(({ key, forMs }) =>
        sayEndless({ key: key === undefined ? undefined : keyOfText(key), forMs }),
      );
    },
  };
}
