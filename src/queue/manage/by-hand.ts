/** `queue.set()`: settings that operators put over those of the rules and of the code; and `undo()`. */
import * as z from "zod";
import { InvalidOptionError, ChangedError } from "../../core/errors.ts";
import { listLeaves } from "../../core/describe.ts";
import { assertNoUndefined } from "../../core/input/arguments.ts";
import { LONGEST_MS, readOptional, readOptions, wholeNumber } from "../../core/input/options.ts";
import {
  queueSettingSchemas,
  SETTING_NAMES,
  type QueueRules,
  type QueueSettingName,
} from "../../core/input/queue-settings.ts";
import { TEXT, WHO_AND_WHY, type WhoAndWhy } from "../../core/input/who-and-why.ts";
import { makeUnder, type ChangeLog, type Inverse } from "../../core/stores/insight/change-log.ts";
import {
  changedFacts,
  NOT_NOW,
  shownFacts,
  type KeptQueueChange,
  type QueueChange,
} from "../../core/stores/insight/changes.ts";
import type { HandSetting, HandSettings } from "../../stores/redis/scripts/queue/steering.ts";
import type { ChangeResult } from "../../stores/redis/scripts/queue/steering.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";

/** Who changes a queue and why, and the queue's generation that this person saw. */
export interface QueueByHand extends WhoAndWhy {
  /**
   * The generation in the `status()` that you saw. If the queue was paused, resumed or set since, the change is refused
   * with `ChangedError`. Defaults to none: the change is always made.
   */
  readonly generation?: number | undefined;
}

/**
 * Each value replaces the operator's earlier override of that setting. `"code"` ends the override: the rules, or else
 * the code, apply again.
 */
export type QueueSetOptions = QueueByHand & {
  readonly [Name in QueueSettingName]?: QueueRules[Name] | "code";
} & {
  /** How long the override lasts, in ms. Not allowed beside a `"code"`. Defaults to no end. */
  readonly forMs?: number | undefined;
};

export interface QueueUndoOptions extends QueueByHand {
  /** The change to undo. Defaults to the last change of the queue. */
  readonly id?: string | undefined;
}

/** Both reject with StoreUnavailableError when Redis is unreachable. */
export interface SettingByHand {
  /**
   * Overrides settings of the rules file and of the code, in all processes, within a second of use: `{ maxBacklog: 500,
   * forMs: 3_600_000, reason: "…" }`. Only the given values are overridden. `status()` says who set what, and
   * `sluice.changes()` lists it.
   *
   * @throws {@link InvalidOptionError} when an option can never work, or the queue belongs to a sender of webhooks.
   * @throws {@link ChangedError} when another change came since the given `generation`; without one, when others came
   * in between five times.
   */
  set(options: QueueSetOptions): Promise<void>;
  /**
   * Undoes a pause, a resume or a setting, and returns that change. The earlier state applies again for the rest of its
   * time. A change that comes during the call stays: without an `id`, only the change that was the last at the call is
   * undone. Undefined if the log has no change of the queue left.
   *
   * @throws {@link CannotUndoError} when the change is of another kind, such as a `drain`, or a later change affected
   * the same.
   * @throws {@link ChangedError} as `set` does.
   */
  undo(options?: QueueUndoOptions): Promise<QueueChange | undefined>;
}

/** @internal */
export const BY_HAND = {
  ...WHO_AND_WHY,
  generation: wholeNumber(0, Number.MAX_SAFE_INTEGER, "changes").optional(),
};
const UNDO = z.strictObject({ ...BY_HAND, id: TEXT.optional() });

/** @throws {@link ChangedError} when nothing was changed. */
export function assertChanged(
  queue: string,
  since: number | undefined,
  changed: ChangeResult,
): void {
  if (changed.isStale) {
    throw new ChangedError({ queue, since: since!, generation: changed.generation });
  }
}

function makeSchema() {
  const forMs = wholeNumber(1, LONGEST_MS, "milliseconds").optional();
  return z.strictObject({ ...queueSettingSchemas(), forMs, ...BY_HAND });
}

/** Created when it is first needed. */
let schema: ReturnType<typeof makeSchema> | undefined;

/** Reads which settings to override, and of which settings the override ends. */
function readSet(where: string, given: QueueSetOptions) {
  schema ??= makeSchema();
  const pairs = typeof given === "object" && given !== null ? Object.entries(given) : [];
  const isEnd = ([name, value]: readonly [string, unknown]): boolean =>
    value === "code" && (SETTING_NAMES as readonly string[]).includes(name);
  const rest = pairs.some(isEnd) ? Object.fromEntries(pairs.filter((pair) => !isEnd(pair))) : given;
  const ended = pairs.filter(isEnd).map(([name]) => name);
  const read = readOptions(where, schema, rest);
  if (read.forMs !== undefined && ended.length > 0) {
    const remedy = `leave it out, or set ${ended[0]} by itself: "code" holds without an end`;
    throw new InvalidOptionError({ where, option: "forMs", value: read.forMs, remedy });
  }
  return { ...read, ended };
}

export function createSettingByHand(parts: {
  readonly queue: string;
  readonly access: StoredAccess;
  readonly lanes: Pick<LaneStore, "setByHand" | "byHand">;
  readonly log: ChangeLog;
  readonly settings: {
    status(): Promise<{
      readonly settings: readonly { readonly name: string; readonly value: number | string }[];
    }>;
    forget(): void;
  };
  /** False for the queue of a sender of webhooks. */
  readonly isSettable: boolean;
  readonly inverseOfPause: (last: KeptQueueChange, since: number) => Promise<Inverse>;
}): SettingByHand {
  const { queue, access, lanes, log, settings, isSettable, inverseOfPause } = parts;
  const byHand = (): Promise<HandSettings> => access.ask(() => lanes.byHand({ queue }));

  /** Reads the values in force of some settings. */
  async function factsOf(names: readonly string[]): Promise<Values> {
    settings.forget();
    const { settings: all } = await settings.status();
    const own = all.filter(({ name }) => names.includes(name.split(".", 1)[0]!));
    return new Map(own.map(({ name, value }) => [name, value]));
  }

  async function put(all: readonly HandSetting[], since: number): Promise<void> {
    const changed = await access.ask(() => lanes.setByHand({ queue, settings: all, since }));
    settings.forget();
    assertChanged(queue, since, changed);
  }

  async function inverseOf(last: KeptQueueChange, since: number): Promise<Inverse> {
    if (last.action !== "set") return inverseOfPause(last, since);
    const goneMs = access.clock.earliestMs() - last.atMs;
    if (last.forMs !== undefined && goneMs >= last.forMs) return { reason: NOT_NOW.settingOver };
    const was = last.was as readonly HandSetting[];
    const back = was.map(({ name, text, forMs }): HandSetting => {
      const leftMs = (forMs ?? Infinity) - goneMs;
      return { name, text: leftMs > 0 ? text : undefined, forMs: leftMs };
    });
    const now = await factsOf(was.map(({ name }) => name));
    const seen = last.after === undefined ? [...now.keys()] : Object.keys(last.after);
    const names = [...new Set([...Object.keys(last.before ?? {}), ...seen])];
    return {
      before: shownFacts(names, now, now).before,
      after: last.before,
      make: () => put(back, since),
    };
  }

  return {
    async set(given) {
      const where = "set()";
      assertNoUndefined(where, given);
      const { forMs, by, reason, generation, ended, ...asked } = readSet(where, given);
      const names = [...Object.keys(asked), ...ended];
      if (!isSettable) {
        const remedy = "leave it out: the queue belongs to a sender of webhooks";
        throw new InvalidOptionError({ where, option: names[0] ?? "queue", value: queue, remedy });
      }
      if (names.length === 0) {
        const remedy = "say what to set, such as { maxBacklog: 10_000 }";
        throw new InvalidOptionError({ where, option: "options", value: given, remedy });
      }
      const all = names.map((name): HandSetting => {
        const value = (asked as Readonly<Record<string, unknown>>)[name];
        const said = { value, by: by ?? log.process, reason };
        const text = value === undefined ? undefined : JSON.stringify(said);
        return { name, text, forMs: forMs ?? Infinity };
      });
      const asks = new Map(listLeaves(asked));
      const how = { queue, action: "set", by, reason, forMs } as const;
      await makeUnder(generation, byHand, async (since, { settings: held }) => {
        const before = await factsOf(names);
        const was = names.map((name) => {
          const { text, forMs: leftMs } = held.find((each) => each.name === name) ?? {};
          return { name, text, forMs: leftMs };
        });
        await log.make(
          { ...how, before: changedFacts(before, asks, "all").before, was },
          () => put(all, since),
          async () => ({ after: changedFacts(before, await factsOf(names), "all").after }),
        );
      });
    },
    async undo(given) {
      const asked = readOptional("undo()", UNDO, given);
      const how = (last: KeptQueueChange, { since }: { readonly since: number }) =>
        inverseOf(last, since);
      return log.undo({ queue, isOfEndpoint: false, see: byHand, inverseOf: how }, asked);
    },
  };
}

type Values = ReadonlyMap<string, unknown>;
