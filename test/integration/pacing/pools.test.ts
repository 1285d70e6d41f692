import { monitorEventLoopDelay } from "node:perf_hooks";
import { afterEach, expect, inject, it } from "vitest";
import {
  startFakeDownstream,
  type FakeDownstream,
  type FakeDownstreamOptions,
} from "sluice/testing";
import { children } from "../../support/children/child.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import type { PoolCallerConfig } from "../../support/processes/pool-caller.ts";
import { closedUrl } from "../../support/servers/closed-url.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const processes = children();
const sluices = realSluices();

/** How late this process, which runs the accounts, may notice a call. */
const delay = monitorEventLoopDelay({ resolution: 5 });
delay.enable();
const seenLateMs = (): number => delay.max / 1e6;

let started: FakeDownstream[] = [];
afterEach(async () => {
  await Promise.all(started.map((each) => each.close()));
  started = [];
});

const RATE = 20;
/** Busy processes may send a call up to two intervals after its slot. */
const MOST_SEEN = RATE + 3;

/** Starts accounts. The network may move a call into the second of others. */
async function startAccounts(
  count: number,
  options: FakeDownstreamOptions = {},
): Promise<readonly FakeDownstream[]> {
  const starting = Array.from({ length: count }, () => startFakeDownstream(options));
  started = await Promise.all(starting);
  return started;
}

/** Lets four processes call through one pool at once. Returns how many requests failed. */
async function runCallers(urls: Readonly<Record<string, string>>, calls: number): Promise<number> {
  const members = Object.fromEntries(
    Object.entries(urls).map(([name, baseUrl]) => [name, { rate: `${RATE}/s`, baseUrl }]),
  );
  const common = { redis: inject("redisUrl"), prefix: sluices.prefix() };
  const config: PoolCallerConfig = { ...common, members, calls };
  const args = [JSON.stringify(config)];
  const callers = Array.from({ length: 4 }, () => processes.start("pool-caller.ts", args));
  await waitUntil(() => callers.every(({ messages }) => messages.length === 1), "all are ready");
  for (const caller of callers) caller.send("go");
  await Promise.all(callers.map((caller) => caller.success()));
  return callers.reduce((sum, { messages }) => sum + Number(messages[1]), 0);
}

it("four processes use each of four accounts fully, and none refuses a call", async () => {
  const accounts = await startAccounts(4, { maxPerSecond: MOST_SEEN, seenLateMs });
  const urls = Object.fromEntries(accounts.map(({ url }, index) => [`account ${index}`, url]));

  const failed = await runCallers(urls, 100);

  expect(failed).toBe(0);
  expect(accounts.map(({ refused }) => refused)).toEqual([0, 0, 0, 0]);
  for (const { arrivals } of accounts) expect(arrivals.length).toBeGreaterThanOrEqual(95);
});

it("four processes go on with the other accounts while one is unreachable", async () => {
  const accounts = await startAccounts(2, { maxPerSecond: MOST_SEEN, seenLateMs });
  const [first, second] = accounts.map(({ url }) => url) as [string, string];

  const failed = await runCallers({ first, dead: await closedUrl(), second }, 50);

  expect(failed).toBe(0);
  expect(accounts.reduce((sum, { arrivals }) => sum + arrivals.length, 0)).toBe(200);
  for (const { arrivals } of accounts) expect(arrivals.length).toBeGreaterThanOrEqual(70);
  expect(accounts.map(({ refused }) => refused)).toEqual([0, 0]);
});
