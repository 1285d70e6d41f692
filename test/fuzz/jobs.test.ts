import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, it } from "vitest";
import { createSluice, Discard, RetryAfter, type Queue, type Sluice } from "sluice";
import { deferred } from "../support/async/deferred.ts";
import {
  hostileJson,
  hostileName,
  hostileNumber,
  hostileOptions,
  hostileText,
  hostileValue,
} from "./support/hostile.ts";
import { assertUnpolluted, forAll, outcomeOf, SILENT } from "./support/outcomes.ts";

let redis: Redis;
let sluice: Sluice;
let queue: Queue<unknown>;
let prefix = "";
beforeAll(() => {
  redis = new Redis(inject("redisUrl"));
});
beforeEach(() => {
  prefix = `t${randomUUID()}`;
  sluice = createSluice({
    redis: inject("redisUrl"),
    prefix,
    logger: SILENT,
    storeTimeoutMs: 20_000,
  });
  const bucket = sluice.bucket("b", { rate: "100000/s", burst: 100, perKey: { rate: "100000/s" } });
  queue = sluice.queue<unknown>("jobs", { bucket });
});
afterEach(() => sluice.close());
afterAll(() => redis.quit());

/** Everything that the test has written; the fleet's report comes at times of its own. */
async function stored(): Promise<unknown[]> {
  const keys = (await redis.keys(`${prefix}:*`)).filter((key) => !key.includes("{:fleet}"));
  return Promise.all(keys.sort().map(async (key) => [key, await redis.dump(key)]));
}

const data = fc.oneof(
  { weight: 3, arbitrary: hostileJson },
  { weight: 1, arbitrary: hostileValue },
);
const ms = fc.oneof(fc.nat(1_000_000), hostileNumber);
const cron = fc.oneof(
  fc.constantFrom("0 9 * * 1-5", "* * * * * *", "0 0 30 2 *", "H H * * *", "@daily", "*/0 * * * *"),
  fc
    .array(fc.constantFrom("*", "1", "99", "-", ",", "/", " ", "L", "#", "a", "1,".repeat(999)), {
      maxLength: 12,
    })
    .map((parts) => parts.join("")),
  hostileName,
);
const enqueuing = {
  key: hostileName,
  cost: fc.oneof(fc.integer({ min: 1, max: 3 }), hostileOptions({ calls: ms, tokens: ms })),
  priority: fc.oneof(fc.constantFrom("low", "critical"), hostileText),
  delayMs: ms,
  at: fc.oneof(ms, fc.date(), hostileValue),
  maxWaitMs: ms,
  id: hostileName,
  name: hostileName,
  timeoutMs: ms,
  dedupe: fc.oneof(fc.constantFrom("first", "last", "again"), hostileText),
  dedupeId: hostileName,
  dedupeMs: ms,
  attempts: ms,
  backoff: hostileOptions({ baseMs: ms, maxMs: ms }),
  every: ms,
  cron,
  timeZone: fc.oneof(fc.constantFrom("UTC", "Europe/Berlin"), hostileText),
};
const one = fc.tuple(data, hostileOptions(enqueuing));

describe("a job", () => {
  it("is stored as JSON holds it, or nothing is", async () => {
    // Its scripts are there, and so is what each queue has.
    await queue.enqueue(0);
    const plain = fc.tuple(hostileJson, hostileOptions(enqueuing));
    const recurring = fc.tuple(
      hostileJson,
      hostileOptions({ ...enqueuing, dedupeId: fc.constant("a"), cron }),
    );
    await forAll(250, fc.oneof(plain, recurring), async ([given, options]) => {
      const before = await queue.counts();
      const result = await outcomeOf(() => queue.enqueue(given, options));
      const after = await queue.counts();
      if (!result.worked) {
        expect(after).toEqual(before);
        return;
      }
      const found = await queue.job(result.value.id);
      expect(found?.data).toEqual(JSON.parse(JSON.stringify(given)));
      for (const { dedupeId } of await queue.schedules()) await queue.unschedule(dedupeId);
      await queue.drain();
    });
  });

  it("is refused before anything is written", async () => {
    await queue.enqueue(0);
    await forAll(150, one, async ([given, options]) => {
      const before = await stored();
      const result = await outcomeOf(() => queue.enqueue(given, options));
      if (!result.worked) expect(await stored()).toEqual(before);
      else await queue.drain();
    });
  });

  it("of many is stored with all others, or none is", async () => {
    await queue.enqueue(0);
    const many = fc.oneof(fc.array(data, { maxLength: 4 }), hostileValue);
    const how = hostileOptions(enqueuing);
    const given = fc.tuple(many, fc.oneof(how, fc.func(how)));
    await forAll(200, given, async ([list, options]) => {
      const before = await queue.counts();
      const result = await outcomeOf(() => queue.enqueueMany(list as never, options as never));
      if (result.worked) await queue.drain();
      else expect(await queue.counts()).toEqual(before);
    });
  });

  it("comes to its handler as plain data, whatever was in it", async () => {
    const handed = new Map<string, unknown>();
    let arrived = deferred();
    sluice.worker(queue, async (job) => {
      handed.set(job.id, job.data);
      arrived.resolve();
    });
    await forAll(100, hostileJson, async (given) => {
      arrived = deferred();
      const result = await outcomeOf(() => queue.enqueue(given));
      if (!result.worked) return;
      await arrived.promise;
      expect(handed.get(result.value.id)).toEqual(JSON.parse(JSON.stringify(given)));
      assertUnpolluted();
    });
  });

  it("ends, whatever its handler does, returns or throws", async () => {
    type Act = readonly [does: unknown, isThrown: boolean, told: unknown];
    let act: Act = [undefined, false, undefined];
    sluice.worker(queue, async (_job, { log, progress, slot }) => {
      const [does, isThrown, told] = act;
      void log(told as string);
      await outcomeOf(() => progress(told as never));
      await outcomeOf(() => slot.settle(told as never));
      if (isThrown) throw does;
      return does;
    });
    const outcome = fc.oneof(
      hostileValue,
      hostileText.map((reason) => new Discard(reason)),
      fc.constantFrom(0, 1).map((afterMs) => new RetryAfter(afterMs)),
      hostileText.map((name) => Object.assign(new Error("bullmq:rateLimitExceeded"), { name })),
      hostileValue.map((message) => Object.assign(new Error("told"), { message })),
    );
    await forAll(150, fc.tuple(outcome, fc.boolean(), hostileJson), async (given) => {
      act = given;
      const job = await queue.enqueue(1, { attempts: 1 });
      await outcomeOf(() => job.finished());
      expect(["done", "failed"]).toContain(await job.state());
    });
  });
});

it("takes no delay for a retry that is none", async () => {
  await forAll(300, fc.oneof(hostileNumber, hostileValue), async (afterMs) => {
    const made = await outcomeOf(() => new RetryAfter(afterMs as number));
    if (made.worked) expect(made.value.ms).toBeGreaterThanOrEqual(0);
  });
});
