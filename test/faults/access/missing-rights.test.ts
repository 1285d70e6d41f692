import { describe, expect, it } from "vitest";
import { StoreUnavailableError } from "sluice";
import { connect } from "../../../src/stores/redis/connection.ts";
import { children } from "../../support/children/child.ts";
import { ownRedisServers, redisNowMs, type OwnRedis } from "../../support/redis/own-redis.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { workOn } from "../../support/jobs/paced-jobs.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const MISSING_FOR_MS = 4_000;
const processes = children();
const servers = ownRedisServers();

/** A user who may do all but this; the URL to come by. */
async function userWithout(redis: OwnRedis, ...rights: string[]): Promise<string> {
  const lacking = rights.map((right) => `-${right}`);
  await redis.operator.acl("SETUSER", "u", "on", ">p", "~*", "&*", "+@all", ...lacking);
  return `redis://u:p@127.0.0.1:${redis.port}`;
}

/** A Redis of the test's own, a sluice whose user lacks rights there, and the lines that it logs as errors. */
async function startWithout(...rights: string[]) {
  const redis = await servers.start();
  const lines: string[] = [];
  const error = (_facts: object, line: string): void => void lines.push(line);
  const logger = { warn: () => {}, error };
  const sluice = redis.open({ redis: await userWithout(redis, ...rights), logger });
  return { redis, lines, sluice };
}

/** How often Redis refused to run a script for want of a right. */
async function refusals({ operator }: OwnRedis): Promise<number> {
  const stats = await operator.info("commandstats");
  const counts = stats.matchAll(/cmdstat_eval(?:sha)?:.*rejected_calls=(\d+)/g);
  return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
}

describe("a worker whose Redis user lacks a right", () => {
  it("logs one line, and its process goes on, when the user may not run INFO", async () => {
    const redis = await servers.start();
    const url = await userWithout(redis, "info");

    const worker = processes.start("workers/reporting-worker.ts", [url]);
    await waitUntil(() => worker.messages.length > 0, "it says something");
    for (const beat of ["1", "2", "3"]) {
      worker.send(beat);
      await waitUntil(() => worker.messages.includes(beat), "its process does other things");
    }

    const [line, ...others] = worker.messages.filter((message) => !/^\d$/.test(String(message)));
    expect(line).toMatch(/^A worker of queue "jobs" met an error: NOPERM .*\binfo\b/);
    expect(line).toContain("docs/guides/production/redis.md");
    expect(others).toEqual([]);
  });

  it("logs the refusal once, retries each second, and continues once the user has the right", async () => {
    const { redis, lines, sluice } = await startWithout("eval", "evalsha");
    const jobs = workOn([sluice], { rate: "100/s" });
    const producer = redis.open();
    const stored = producer.queue<number>("jobs", {
      bucket: producer.bucket("b", { rate: "100/s" }),
    });
    await stored.enqueueMany([1, 2, 3]);
    await waitUntil(() => lines.length > 0, "it says something");

    const fromMs = await redisNowMs(redis.operator);
    const before = await refusals(redis);
    await waitUntil(
      async () => (await redisNowMs(redis.operator)) > fromMs + MISSING_FOR_MS,
      "it lacks the right for a while",
    );
    const asked = (await refusals(redis)) - before;
    const seconds = ((await redisNowMs(redis.operator)) - fromMs) / 1_000;
    await redis.operator.acl("SETUSER", "u", "+eval", "+evalsha");
    await jobs.untilEmpty();

    reportFigures("the Redis user may not run scripts", { "asked each second": asked / seconds });
    // The jobs, the lanes, and jobs that stand still are each asked for; what was set by hand, twice.
    expect(asked).toBeLessThanOrEqual(5 * (seconds + 1));
    // Once more, if that was before the worker's second connection was ready.
    expect(lines.length).toBeLessThanOrEqual(2);
    expect([...new Set(lines)]).toEqual([
      expect.stringMatching(/^A worker of queue "jobs" met .*NOPERM .*'evalsha'/),
    ]);
    expect(jobs.reached()).toEqual(new Set([1, 2, 3]));
  });

  it("names the missing rights when it cannot remove done jobs, and keeps working", async () => {
    const { redis, lines, sluice } = await startWithout("unlink");
    const jobs = workOn([sluice], { rate: "1000/s" });
    const producer = redis.open();
    const bucket = producer.bucket("b", { rate: "1000/s" });
    const numbers = Array.from({ length: 1_100 }, (_, index) => index);
    await producer.queue<number>("jobs", { bucket }).enqueueMany(numbers);

    await waitUntil(() => jobs.reached().size === 1_100, "all are done");
    await waitUntil(() => lines.length > 0, "it says so");

    expect(lines).toEqual([
      expect.stringMatching(/^A worker of queue "jobs" met .*docs\/guides\/production\/redis\.md/),
    ]);
  });
});

describe("a process whose Redis user may not run INFO", () => {
  it("logs that once, and continues by itself when it gets the right", async () => {
    const { redis, lines, sluice } = await startWithout("info");
    const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "100/s" }) });
    const done: unknown[] = [];
    queue.on("done", ({ result }) => void done.push(result));
    sluice.worker(queue, async ({ data }) => data);
    const reasons = [await rejectionOf(queue.enqueue(1)), await rejectionOf(queue.enqueue(2))];
    await waitUntil(() => lines.some((line) => line.startsWith("A worker")), "the worker says so");

    await redis.operator.acl("SETUSER", "u", "+info");
    await waitUntil(
      () =>
        queue.enqueue(3).then(
          () => true,
          () => false,
        ),
      "a job is stored",
    );
    await waitUntil(() => done.includes(3), "it is done, and that is heard");

    for (const reason of reasons) {
      expect(String(reason)).toMatch(
        /Redis refused .*NOPERM .*docs\/guides\/production\/redis\.md/,
      );
    }
    expect(lines.toSorted()).toEqual([
      expect.stringMatching(/^A worker of queue "jobs" met an error: NOPERM .*\binfo\b/),
      expect.stringMatching(/^Queue "jobs" met an error: NOPERM .*\binfo\b/),
    ]);
  });

  it("sends no more requests once its connection is closed", async () => {
    const redis = await servers.start();
    const client = connect(await userWithout(redis, "info"), "worker");
    const refused = new Promise((resolve) => void client.once("error", resolve));
    const asking = rejectionOf(client.info());
    await refused;

    client.disconnect();

    expect(String(await asking)).toContain("NOPERM");
  });
});

describe("a caller whose Redis user lacks a right", () => {
  it("gets an error with the refused command and the page that lists the rights", async () => {
    const redis = await servers.start();
    const url = await userWithout(redis, "eval", "evalsha", "zcard", "xadd");
    const warnings: object[] = [];
    const logger = { warn: (facts: object) => void warnings.push(facts), error: () => {} };
    const sluice = redis.open({ redis: url, storeTimeoutMs: 500, logger });
    const bucket = sluice.bucket("b", { rate: "100/s" });
    const queue = sluice.queue<number>("jobs", { bucket });
    queue.on("done", () => {});

    const told = [
      rejectionOf(bucket.draw()),
      rejectionOf(queue.counts()),
      rejectionOf(queue.enqueue(1)),
    ];

    for (const error of await Promise.all(told)) {
      expect(error).toBeInstanceOf(StoreUnavailableError);
      expect(String(error)).toMatch(/Redis refused .*NOPERM .*docs\/guides\/production\/redis\.md/);
    }
    expect(warnings).toContainEqual(
      expect.objectContaining({ queue: "jobs", reason: expect.stringMatching(/NOPERM/) }),
    );
  });
});
