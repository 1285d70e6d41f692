/** Implements `queue.set()`, with which operators override settings from the rules and the code, and `queue.undo()`. */
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

/** Who changes a queue and why, and the queue generation on which the change is based. */
export interface QueueByHand extends WhoAndWhy {
  /**
   * The `generation` of the `status()` that you read before. If the queue was paused, resumed or set since then, the
   * change is rejected with `ChangedError`. Without a generation, the change is always made.
   */
  readonly generation?: number | undefined;
}

/**
 * The settings to override. Each value replaces the earlier override of the same setting. `"code"` ends the override,
 * so that the value from the rules, or else from the code, applies again.
 */
export type QueueSetOptions = QueueByHand & {
  readonly [Name in QueueSettingName]?: QueueRules[Name] | "code";
} & {
  /** How long the override lasts, in ms. Not allowed together with `"code"`. Defaults to no end. */
  readonly forMs?: number | undefined;
};

export interface QueueUndoOptions extends QueueByHand {
  /** The id of the change to undo. Defaults to the latest change of the queue. */
  readonly id?: string | undefined;
}

/**
 * Lets operators change the settings of a queue. Both methods reject with StoreUnavailableError when Redis is
 * unreachable.
 */
export interface SettingByHand {
  /**
   * Overrides settings from the rules file and the code: `{ maxBacklog: 500, forMs: 3_600_000, reason: "…" }`. Each
   * process that uses the queue applies the override within a second. Only the given settings are overridden.
   * `status()` shows who set each value, and `sluice.changes()` lists the change.
   *
   * @throws {@link InvalidOptionError} when an option can never work, or the queue belongs to a sender of webhooks.
   * @throws {@link ChangedError} when the queue was changed since the given `generation`. Without a `generation`, when
   * other changes interfered five times in a row.
   */
  set(options: QueueSetOptions): Promise<void>;
  /**
   * Undoes a pause, a resume or a setting, and returns the undone change. The earlier state applies again for the rest
   * of its time. Without an `id`, undoes the change that was the latest when you called this. A change that is made
   * during the call is not undone. Resolves with undefined if the log contains no change of the queue.
   *
   * @throws {@link CannotUndoError} when the change is of another kind, such as a `drain`, or a later change affected
   * the same pause or setting.
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

/**
 * Checks that a change was made.
 *
 * @throws {@link ChangedError} when nothing was changed, because another change came first.
 */
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

/** The schema of `set()`, created on first use. */
let schema: ReturnType<typeof makeSchema> | undefined;

/** Validates the options of `set()`. Returns which settings to override, and which overrides to end. */
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
  /** False for the queue of a webhook sender, whose settings operators cannot change. */
  readonly isSettable: boolean;
  readonly inverseOfPause: (last: KeptQueueChange, since: number) => Promise<Inverse>;
}): SettingByHand {
  const { queue, access, lanes, log, settings, isSettable, inverseOfPause } = parts;
  const byHand = (): Promise<HandSettings> => access.ask(() => lanes.byHand({ queue }));

  /** Reads the active values of the named settings. */
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
