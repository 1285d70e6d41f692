import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, it, onTestFinished } from "vitest";
import { concurrency, leakyBucket, type Bucket } from "sluice";
import { openSluice, startOwnRedis } from "../../support/redis/for-one-test.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { figuresOf } from "../../support/draws/steady-draws.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = 100;
const AT_ONCE = 5;
const JOBS = 90;
const ANSWER = "0123456789";
const DRIP_MS = 10;

/** Answers as it likes; how many calls came, and the most that were open at once. */
async function startDownstream(answer: (response: ServerResponse, call: number) => void) {
  const seen = { came: 0, open: 0, most: 0 };
  const server = createServer((_request, response) => {
    seen.came += 1;
    seen.open += 1;
    seen.most = Math.max(seen.most, seen.open);
    response.once("close", () => (seen.open -= 1));
    answer(response, seen.came);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return { seen, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

/** Two replicas do jobs, each of which is one call of the downstream; resolves when all are done, with their slots. */
async function callFromJobs(url: string) {
  const redis = await startOwnRedis();
  const limits = [leakyBucket(`${RATE}/s`), concurrency(AT_ONCE)];
  const slotsMs: number[] = [];
  const answers: string[] = [];
  const replicas = [1, 2].map(() => {
    const sluice = openSluice({ redis: redis.url });
    const bucket = sluice.bucket("b", { limits });
    const queue = sluice.queue<number>("jobs", { bucket });
    sluice.worker(queue, async (_job, { slot }) => {
      slotsMs.push(slot.atMs);
      const response = await bucket.fetch(url, { method: "POST" });
      answers.push(await response.text());
    });
    return { bucket, queue };
  });
  const { bucket, queue } = replicas[0]!;
  const numbers = Array.from({ length: JOBS }, (_, number) => number);
  await queue.enqueueMany(numbers, { attempts: 10, backoff: { baseMs: 1 } });
  await waitUntil(async () => (await queue.counts()).done === JOBS, "all jobs are done");
  await waitUntil(() => areLeasesBack(bucket), "all leases are back");
  return { slotsMs, answers };
}

function drip(response: ServerResponse): void {
  let sent = 0;
  const dripping = setInterval(() => {
    response.write(ANSWER[sent++]);
    if (sent === ANSWER.length) response.end();
  }, DRIP_MS);
  response.once("close", () => clearInterval(dripping));
}

async function areLeasesBack(bucket: Bucket): Promise<boolean> {
  return (await bucket.peek()).limits[1]!.remaining === AT_ONCE;
}

it("workers do each job of a downstream that resets every third call, on separate slots and without leaked leases", async () => {
  const { seen, url } = await startDownstream((response, call) => {
    if (call % 3 === 0) response.socket!.resetAndDestroy();
    else response.end(ANSWER);
  });

  const { slotsMs, answers } = await callFromJobs(url);

  const figures = figuresOf(slotsMs, RATE);
  reportFigures("the downstream resets every third call", { ...figures, calls: seen.came });
  expect(answers).toEqual(Array.from({ length: JOBS }, () => ANSWER));
  expect(seen.came).toBeGreaterThan(JOBS);
  expect(slotsMs).toHaveLength(seen.came);
  expect(figures.extra).toBe(0);
  expect(seen.most).toBeLessThanOrEqual(AT_ONCE);
});

it("a bucket counts a slow response as a running call until it is complete", async () => {
  const held: (() => void)[] = [];
  const { seen, url } = await startDownstream((response, call) => {
    if (call > AT_ONCE) return drip(response);
    // The first ones begin together, so that as many are open at once as ever may be.
    held.push(() => drip(response));
    if (held.length === AT_ONCE) for (const begin of held) begin();
  });

  const { slotsMs, answers } = await callFromJobs(url);

  const figures = figuresOf(slotsMs, RATE);
  reportFigures("the downstream drips its answers", { ...figures, "most at once": seen.most });
  expect(answers).toEqual(Array.from({ length: JOBS }, () => ANSWER));
  expect(slotsMs).toHaveLength(JOBS);
  expect(figures.extra).toBe(0);
  expect(seen.most).toBe(AT_ONCE);
});
