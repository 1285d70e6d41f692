import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { afterEach, beforeEach, expect, inject, it } from "vitest";
import { createSluice, Discard, RetryAfter, type Key, type Queue, type Sluice } from "sluice";
import { isWithin, encodeKey } from "../../src/core/key-path.ts";
import { waitUntil } from "../support/async/wait-until.ts";
import { SILENT } from "./support/outcomes.ts";

/** Random histories of a queue whose keys are paths, beside a plain model of what must be there: done, waiting, or a dead letter. */
interface Work {
  readonly number: number;
  readonly plan: "do" | "retry" | "fail";
}

/** Keys of jobs; the filters of all of them are these, and their heads. */
const KEYS: readonly (Key | undefined)[] = [
  undefined,
  "solo",
  "acme",
  "acme-2",
  ["acme", "a"],
  ["acme", "b"],
  ["acme", "b", "x"],
  ["acme", "b", "y"],
  ["__proto__", "a"],
  ["{x}", "a b", "1"],
];
const FILTERS: readonly Key[] = [
  "solo",
  "acme",
  ["acme"],
  "acme-2",
  ["acme", "a"],
  ["acme", "b"],
  ["acme", "b", "x"],
  ["acme", "c"],
  "__proto__",
  "{x}",
  ["{x}", "a b"],
  "nobody",
];
const PRIORITIES = ["critical", "high", "normal", "low"] as const;
const PLANS = ["do", "do", "retry", "fail"] as const;

const filter = fc.option(fc.nat(FILTERS.length - 1), { nil: undefined });
const KEYED = { key: filter };
const ACT = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      act: fc.constant("enqueue" as const),
      of: fc.nat(KEYS.length - 1),
      count: fc.integer({ min: 1, max: 5 }),
      priority: fc.nat(PRIORITIES.length - 1),
      plan: fc.nat(PLANS.length - 1),
      isDelayed: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ act: fc.constant("drain" as const), ...KEYED }) },
  { weight: 1, arbitrary: fc.record({ act: fc.constant("removeJobs" as const), ...KEYED }) },
  {
    weight: 2,
    arbitrary: fc.record({
      act: fc.constant("reschedule" as const),
      isDelayed: fc.boolean(),
      ...KEYED,
    }),
  },
  { weight: 2, arbitrary: fc.record({ act: fc.constant("pause" as const), ...KEYED }) },
  { weight: 2, arbitrary: fc.record({ act: fc.constant("resume" as const), ...KEYED }) },
  { weight: 1, arbitrary: fc.record({ act: fc.constant("remove" as const), nth: fc.nat(999) }) },
  {
    weight: 1,
    arbitrary: fc.record({ act: fc.constant("reprioritise" as const), nth: fc.nat(999) }),
  },
  { weight: 2, arbitrary: fc.record({ act: fc.constant("replay" as const), ...KEYED }) },
  { weight: 1, arbitrary: fc.record({ act: fc.constant("purge" as const), ...KEYED }) },
  { weight: 1, arbitrary: fc.record({ act: fc.constant("look" as const), ...KEYED }) },
);
type Act = typeof ACT extends fc.Arbitrary<infer Each> ? Each : never;

interface Modelled {
  readonly key: string | undefined;
  readonly plan: Work["plan"];
  readonly state: "waiting" | "failed" | "done";
}

let sluice: Sluice;
let queue: Queue<Work>;
let stored: Map<string, Modelled>;
/** How often each job was done. */
let done: Map<string, number>;
let isHealed: Set<string>;
let enqueued = 0;
let times = 0;

beforeEach(() => open());
afterEach(() => sluice.close());

function open(): void {
  const prefix = `t${randomUUID()}`;
  sluice = createSluice({
    redis: inject("redisUrl"),
    prefix,
    logger: SILENT,
    storeTimeoutMs: 20_000,
  });
  const perKey = [{ rate: "5000/s" }, { rate: "2000/s" }];
  queue = sluice.queue<Work>("jobs", {
    bucket: sluice.bucket("downstream", { rate: "10000/s", burst: 50, perKey }),
  });
  stored = new Map();
  done = new Map();
  isHealed = new Set();
}

function work() {
  return sluice.worker(queue, async ({ id, data }, { attempt }) => {
    if (data.plan === "retry" && attempt === 1) throw new RetryAfter(5);
    if (data.plan === "fail" && !isHealed.has(id)) throw new Discard("never");
    done.set(id, (done.get(id) ?? 0) + 1);
  });
}

const named = (index: number | undefined): Key | undefined =>
  index === undefined ? undefined : FILTERS[index];
/** With nothing left undefined: that is refused. */
const asFilter = (key: Key | undefined): { key?: Key } => (key === undefined ? {} : { key });

function matching(key: Key | undefined, state: Modelled["state"]): string[] {
  return [...stored].flatMap(([id, job]) => {
    if (job.state !== state) return [];
    if (key === undefined) return [id];
    return job.key !== undefined && isWithin(job.key, encodeKey(key)) ? [id] : [];
  });
}

async function enqueue(act: Extract<Act, { act: "enqueue" }>, delayMs: number): Promise<string[]> {
  const key = KEYS[act.of];
  const plan = PLANS[act.plan]!;
  const data = Array.from({ length: act.count }, () => ({ number: (enqueued += 1), plan }));
  const jobs = await queue.enqueueMany(data, {
    key,
    priority: PRIORITIES[act.priority]!,
    delayMs: act.isDelayed ? delayMs : 0,
  });
  for (const { id } of jobs) {
    stored.set(id, { key: key === undefined ? undefined : encodeKey(key), plan, state: "waiting" });
  }
  return jobs.map(({ id }) => id);
}

/** Does one act while no worker is there: the model knows what comes of it. */
async function actAlone(act: Act): Promise<void> {
  const key = "key" in act ? named(act.key) : undefined;
  const meant = matching(key, "waiting");
  const failed = matching(key, "failed");
  switch (act.act) {
    case "enqueue":
      await enqueue(act, 3_600_000);
      break;
    case "drain":
    case "removeJobs":
      expect(await queue[act.act](asFilter(key))).toBe(meant.length);
      for (const id of meant) stored.delete(id);
      break;
    case "reschedule": {
      // A time that no job has yet: what is due then already does not count.
      const atMs = (act.isDelayed ? 2e12 : 1e12) + (times += 1);
      expect(await queue.rescheduleJobs(asFilter(key), { at: atMs })).toBe(meant.length);
      break;
    }
    case "pause":
      await queue.pause(asFilter(key));
      break;
    case "resume":
      await queue.resume(asFilter(key));
      break;
    case "remove": {
      const [id] = [...stored.keys()].slice(act.nth % Math.max(1, stored.size));
      if (id === undefined) break;
      expect(await queue.remove(id)).toBe(true);
      stored.delete(id);
      break;
    }
    case "reprioritise": {
      const [id] = [...stored.keys()].slice(act.nth % Math.max(1, stored.size));
      if (id === undefined) break;
      expect(await queue.reprioritise(id, "high")).toBe(stored.get(id)!.state === "waiting");
      break;
    }
    case "replay":
      expect(await queue.replay(asFilter(key))).toBe(failed.length);
      for (const id of failed) {
        isHealed.add(id);
        stored.set(id, { ...stored.get(id)!, state: "waiting" });
      }
      break;
    case "purge":
      expect(await queue.purge(asFilter(key))).toBe(failed.length);
      for (const id of failed) stored.delete(id);
      break;
    case "look":
      await expectModelled(key);
      break;
  }
}

/** What the queue tells of a key is what the model has. */
async function expectModelled(key: Key | undefined): Promise<void> {
  const { waiting, delayed, active, failed, done: kept } = await queue.counts(asFilter(key));
  const letters = await queue.failed({ ...asFilter(key), limit: 1_000 });
  const listed: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await queue.jobs({ ...asFilter(key), limit: 7, cursor });
    listed.push(...page.jobs.map(({ id }) => id));
    ({ cursor } = page);
  } while (cursor !== undefined);

  const of = (state: Modelled["state"]): number => matching(key, state).length;
  expect({ key, there: waiting + delayed, active, failed, kept }).toEqual({
    key,
    there: of("waiting"),
    active: 0,
    failed: of("failed"),
    kept: of("done"),
  });
  expect(letters.map(({ id }) => id).toSorted()).toEqual(matching(key, "failed").toSorted());
  const all = (["waiting", "failed", "done"] as const).flatMap((state) => matching(key, state));
  expect(listed.toSorted()).toEqual(all.toSorted());
}

/** Nothing is held back any more, and a worker does what there is. */
async function workItOff(): Promise<void> {
  await queue.resume();
  for (const { key } of await queue.paused()) await queue.resume(asFilter(key));
  await queue.rescheduleJobs({}, { delayMs: 0 });
  await waitUntil(async () => {
    const { waiting, delayed, active } = await queue.counts();
    return waiting + delayed + active === 0;
  }, "all has ended");
}

it("has every job of a path where the acts on it and on its heads have put it", async () => {
  const history = fc.tuple(
    fc.array(ACT, { minLength: 10, maxLength: 30 }),
    fc.array(ACT, { minLength: 5, maxLength: 20 }),
  );
  await fc.assert(
    fc.asyncProperty(history, async (halves) => {
      for (const acts of halves) {
        for (const act of acts) await actAlone(act);
        for (const key of [undefined, ...FILTERS]) await expectModelled(key);
        const worker = work();
        await workItOff();
        await worker.close();
        for (const [id, job] of stored) {
          if (job.state !== "waiting") continue;
          const isFailing = job.plan === "fail" && !isHealed.has(id);
          stored.set(id, { ...job, state: isFailing ? "failed" : "done" });
        }
        for (const key of [undefined, ...FILTERS]) await expectModelled(key);
      }
      expect([...done.values()].filter((times) => times !== 1)).toEqual([]);
      await sluice.close();
      open();
    }),
    { numRuns: 12, endOnFailure: true },
  );
});

it("loses no job of a path and runs none twice, whatever operators and tools do", async () => {
  const acts = fc.array(fc.array(ACT, { minLength: 1, maxLength: 4 }), {
    minLength: 20,
    maxLength: 30,
  });
  await fc.assert(
    fc.asyncProperty(acts, async (rounds) => {
      const worker = work();
      const removers = new Set<Key | undefined>();
      const taken = new Set<string>();
      let removed = 0;

      const actBeside = async (act: Act): Promise<void> => {
        const key = "key" in act ? named(act.key) : undefined;
        if (["drain", "removeJobs", "purge"].includes(act.act)) removers.add(key);
        const [id] =
          "nth" in act ? [...stored.keys()].slice(act.nth % Math.max(1, stored.size)) : [];
        if (act.act === "enqueue") await enqueue(act, 20);
        // Others add to it meanwhile.
        const removes = (count: number): void => void (removed += count);
        if (act.act === "drain") removes(await queue.drain(asFilter(key)));
        if (act.act === "removeJobs") removes(await queue.removeJobs(asFilter(key)));
        if (act.act === "purge") removes(await queue.purge(asFilter(key)));
        // One that is done or has failed is removed, too.
        if (act.act === "remove" && id !== undefined && (await queue.remove(id))) taken.add(id);
        if (act.act === "pause") await queue.pause(asFilter(key));
        if (act.act === "resume") await queue.resume(asFilter(key));
        if (act.act === "reprioritise" && id !== undefined) await queue.reprioritise(id, "low");
        if (act.act === "reschedule") {
          await queue.rescheduleJobs(asFilter(key), { delayMs: act.isDelayed ? 30 : 0 });
        }
        if (act.act === "replay") await queue.replay(asFilter(key));
      };
      for (const round of rounds) await Promise.all(round.map(actBeside));
      await workItOff();

      const letters = new Set((await queue.failed({ limit: 10_000 })).map(({ id }) => id));
      const missing = [...stored].filter(
        ([id]) => !done.has(id) && !letters.has(id) && !taken.has(id),
      );
      const strays = missing.filter(
        ([, { key }]) =>
          !removers.has(undefined) &&
          ![...removers].some(
            (each) => each !== undefined && key !== undefined && isWithin(key, encodeKey(each)),
          ),
      );
      expect({ missing: missing.length, strays }).toEqual({ missing: removed, strays: [] });
      expect([...done].filter(([id, times]) => times !== 1 || letters.has(id))).toEqual([]);
      await worker.close();
      await sluice.close();
      open();
    }),
    { numRuns: 12, endOnFailure: true },
  );
});
