import fc from "fast-check";
import { expect, it } from "vitest";
import { headsOfText, encodeKey } from "../../../src/core/key-path.ts";
import { HOUR_MS, lanesByHand } from "../../support/jobs/lanes-by-hand.ts";

const byHand = lanesByHand();

const KEYS = [
  ["solo"],
  ["acme"],
  ["acme", "a"],
  ["acme", "b"],
  ["acme", "b", "x"],
  ["acme", "b", "y"],
  ["zeta", "c", "x"],
].map(encodeKey);
const HEADS = [...new Set(KEYS.flatMap(headsOfText))];

const of = (list: readonly string[]): fc.Arbitrary<string> => fc.constantFrom(...list);

/** What happens to lanes, in any order. */
const STEP = fc.oneof(
  fc.record({ step: fc.constant("enqueue" as const), key: of(KEYS) }),
  fc.record({ step: fc.constant("take" as const), count: fc.integer({ min: 1, max: 4 }) }),
  // The job that was taken last goes back, since a level of its key has no room.
  fc.record({ step: fc.constant("put back" as const), level: fc.nat(2) }),
  fc.record({ step: fc.constant("wake" as const), key: of([...HEADS, "*"]) }),
  fc.record({ step: fc.constant("probe" as const), key: of(KEYS), wentAtOnce: fc.boolean() }),
  fc.record({ step: fc.constant("pause" as const), key: of(HEADS) }),
  fc.record({ step: fc.constant("resume" as const), key: of(HEADS) }),
  fc.record({ step: fc.constant("remove" as const), at: fc.nat(20) }),
  fc.record({ step: fc.constant("drop" as const), key: of(HEADS) }),
);
type Step = typeof STEP extends fc.Arbitrary<infer T> ? T : never;

const keyIn = (id: string): string => id.slice(0, id.indexOf("-"));

/** Jobs that wait, that a worker has, and the keys that are paused. */
function createHistory() {
  const waiting = new Set<string>();
  const taken: string[] = [];
  const paused = new Set<string>();

  async function take(count: number): Promise<void> {
    for (const id of await byHand.takeIds(count)) {
      expect(waiting.delete(id), `${id} waits`).toBe(true);
      expect(headsOfText(keyIn(id)).filter((head) => paused.has(head))).toEqual([]);
      taken.push(id);
    }
  }

  async function act(given: Step): Promise<void> {
    switch (given.step) {
      case "enqueue":
        for (const id of await byHand.enqueue(given.key, 2, { share: 2 })) waiting.add(id);
        return;
      case "take":
        return take(given.count);
      case "put back": {
        const id = taken.pop();
        if (id === undefined) return;
        const heads = headsOfText(keyIn(id));
        const aside = heads[Math.min(given.level, heads.length - 1)]!;
        waiting.add(id);
        return byHand.putBack(id, { roomInMs: HOUR_MS, aside });
      }
      case "wake":
        return void (await byHand.take({ woken: [given.key] }));
      case "probe":
        return void (await byHand.take({ probes: [[given.key, given.wentAtOnce]] }));
      case "pause":
        paused.add(given.key);
        return void (await byHand.lanes.pause({ queue: "jobs", key: given.key, forMs: Infinity }));
      case "resume":
        paused.delete(given.key);
        return void (await byHand.lanes.pause({ queue: "jobs", key: given.key, forMs: 0 }));
      case "remove": {
        const id = [...waiting][given.at];
        if (id === undefined) return;
        expect(await byHand.lanes.remove({ queue: "jobs", state: "pending", ids: [id] })).toEqual([
          id,
        ]);
        waiting.delete(id);
        return;
      }
      case "drop":
        // As an earlier build does, to which a head is a lane without jobs.
        if (!KEYS.includes(given.key))
          await byHand.redis.zrem(byHand.keyOf("lanes:ready"), given.key);
        return;
    }
  }

  /** Ends all pauses, and takes what is left while all have room. */
  async function finish(): Promise<void> {
    for (const key of paused) await byHand.lanes.pause({ queue: "jobs", key, forMs: 0 });
    paused.clear();
    await byHand.redis.hdel(byHand.keyOf("lanes:state"), "mendedAt");
    await byHand.take({ woken: ["*"] });
    const probes = KEYS.flatMap((key) => [[key, true] as const, [key, true] as const]);
    await byHand.take({ probes });
    await take(10_000);
  }

  return { waiting, act, finish };
}

it("lanes lose no job, grant none twice and leave no state after any sequence of steps", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(STEP, { minLength: 30, maxLength: 80 }), async (steps) => {
      // What a history that has failed left, while a shorter one is looked for.
      const left = await byHand.redis.keys(byHand.keyOf("*"));
      if (left.length > 0) await byHand.redis.del(left);
      const history = createHistory();

      for (const step of steps) await history.act(step);
      await history.finish();

      expect([...history.waiting]).toEqual([]);
      expect(await byHand.kept()).toEqual(["lanes:state"]);
    }),
    { numRuns: 30 },
  );
});
