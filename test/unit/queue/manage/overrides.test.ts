import { describe, expect, it } from "vitest";
import { ChangedError, InvalidOptionError } from "../../../../src/core/errors.ts";
import { createChangeLog } from "../../../../src/core/stores/insight/change-log.ts";
import type {
  HandSetting,
  HandSettings,
} from "../../../../src/stores/redis/scripts/queue/steering.ts";
import { createMemoryInsight } from "../../../../src/stores/memory/memory-insight.ts";
import type { StoredAccess } from "../../../../src/queue/bullmq/stored-queue.ts";
import { createSettings } from "../../../../src/queue/enqueue/settings.ts";
import { createSettingByHand } from "../../../../src/queue/manage/overrides.ts";
import { checkRules } from "../../../../src/rules/read.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";

/** A queue whose settings are kept here; what is in `meanwhile` comes just before a change of it, one each. */
function openQueue() {
  const meanwhile: (() => Promise<void> | void)[] = [];
  const kept = new Map<string, HandSettings["settings"][number]>();
  let generation = 0;
  const byHand = async (): Promise<HandSettings> => ({
    generation,
    settings: [...kept.values()],
  });
  const lanes = {
    byHand,
    async setByHand({
      settings,
      since,
    }: {
      readonly settings: readonly (Omit<HandSetting, "text"> & {
        readonly text?: string | undefined;
      })[];
      readonly since?: number | undefined;
    }) {
      await meanwhile.shift()?.();
      if (since !== undefined && since !== generation) return { isStale: true, generation };
      for (const { name, text, forMs } of settings) {
        if (text === undefined) kept.delete(name);
        else kept.set(name, { name, text, forMs, atMs: Date.now() });
      }
      return { isStale: false, generation: ++generation };
    },
  };
  const insight = createMemoryInsight();
  const settings = createSettings({
    code: {},
    weightsOf: () => undefined,
    read: { rules: async () => undefined, byHand },
    logger: console,
  });
  const access = {
    clock: { earliestMs: () => Date.now() },
    ask: async (question: () => Promise<unknown>) => question(),
  } as unknown as StoredAccess;
  const log = createChangeLog({ store: insight, logger: console, process: "web-7:1" });
  const parts = { queue: "jobs", access, lanes, log, settings, isSettable: true };
  const inverseOfPause = async () => ({ reason: "there are none here" });
  const queue = createSettingByHand({ ...parts, inverseOfPause });
  const changes = () => insight.changes({ queue: "jobs", before: undefined, limit: 100 });
  const valueOf = async (name: string) =>
    (await settings.status()).settings.find((each) => each.name === name)?.value;
  return { queue, meanwhile, changes, valueOf };
}

const many = (count: number, weight: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, at) => [`k${at}`, weight]));

describe("a setting by hand while others change the queue", () => {
  it("logs the actual earlier value, which undo restores", async () => {
    const { queue, meanwhile, valueOf } = openQueue();
    await queue.set({ maxBacklog: 1 });
    meanwhile.push(() => queue.set({ maxBacklog: 2 }));

    await queue.set({ maxBacklog: 3 });

    expect(await valueOf("maxBacklog.all")).toBe(3);
    await queue.undo();
    expect(await valueOf("maxBacklog.all")).toBe(2);
  });

  it("gives up after five times", async () => {
    const { queue, meanwhile, valueOf } = openQueue();
    // Each of these is a change itself, and takes the next entry, which is none.
    for (let time = 1; time <= 5; time++) {
      meanwhile.push(() => queue.set({ maxBacklog: time }));
      meanwhile.push(() => {});
    }

    expect(await rejectionOf(queue.set({ keepDone: { count: 1 } }))).toBeInstanceOf(ChangedError);

    expect(await valueOf("maxBacklog.all")).toBe(5);
    expect(await valueOf("keepDone.count")).toBe(1_000);
  });

  it("undoes the change that was the last one at first, and not a later one", async () => {
    const { queue, meanwhile, changes, valueOf } = openQueue();
    await queue.set({ maxBacklog: 1, by: "ann" });
    const [anns] = await changes();
    meanwhile.push(() => queue.set({ defaults: { attempts: 4 }, by: "bob" }));

    const error = await rejectionOf(queue.undo());

    expect(error).toMatchObject({ code: "ERR_CANNOT_UNDO", change: anns!.id });
    expect(await valueOf("defaults.attempts")).toBe(4);
  });
});

it("shows twenty of many weights in the log, and restores all", async () => {
  const { queue, changes, valueOf } = openQueue();
  await queue.set({ weights: many(1_000, 2) });
  await queue.set({ weights: many(900, 3) });

  const [change] = await changes();
  expect(Object.keys(change!.before!)).toHaveLength(20);
  expect(change!.after).toMatchObject({ "weights.k0": 3, more: 980 });
  expect(Object.keys(change!.after!)).toHaveLength(21);
  await queue.undo();
  expect(await valueOf("weights.k999")).toBe(2);
  expect(Object.keys((await changes())[0]!.before!)).toHaveLength(20);
});

it.each([
  ["in one table", many(1_001, 2)],
  ["of two levels together", [many(501, 2), null, many(500, 2)]],
])(
  "refuses weights of more than 1,000 keys %s, from operators and rules",
  async (_what, weights) => {
    const { queue, changes } = openQueue();

    const error = await rejectionOf(queue.set({ weights }));
    const rules = checkRules("s.json", JSON.stringify({ buckets: {}, queues: { q: { weights } } }));

    expect(error).toBeInstanceOf(InvalidOptionError);
    expect(error).toMatchObject({ option: "weights" });
    expect(String(error)).toContain("1000 keys at most");
    expect(await changes()).toEqual([]);
    expect(JSON.stringify(rules.problems)).toContain("1000 keys at most");
  },
);

it("refuses an end time beside a setting without one", async () => {
  const { queue, changes } = openQueue();

  const error = await rejectionOf(queue.set({ maxBacklog: 5, weights: "code", forMs: 1_000 }));

  expect(error).toBeInstanceOf(InvalidOptionError);
  expect(error).toMatchObject({ option: "forMs", value: 1_000 });
  expect(await changes()).toEqual([]);
});
