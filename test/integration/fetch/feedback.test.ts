import { describe, expect, inject, it } from "vitest";
import type { BucketOptions } from "sluice";
import { children } from "../../support/children/child.ts";
import {
  fakeApis,
  secondCap,
  type ApiAnswer,
  type FakeApi,
} from "../../support/servers/fake-api.ts";
import type { CallerConfig } from "../../support/processes/caller.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const processes = children();
const sluices = realSluices();
const apis = fakeApis();

const HORIZON_MS = 100;
/** For the answer's way back, Redis, and processes that share two cores: a change has to reach all within a second. */
const SLACK_MS = 500;

const refusal = (retryAfter: string): ApiAnswer => ({
  status: 429,
  headers: { "retry-after": retryAfter },
});

async function runCallers(api: FakeApi, bucket: BucketOptions, calls: number): Promise<void> {
  const common = { redis: inject("redisUrl"), prefix: sluices.prefix(), url: api.url };
  const config: CallerConfig = { ...common, bucket, calls };
  const args = [JSON.stringify(config)];
  const callers = Array.from({ length: 4 }, () => processes.start("caller.ts", args));
  await waitUntil(() => callers.every(({ messages }) => messages.length === 1), "all are ready");
  for (const caller of callers) caller.send("go");
  await Promise.all(callers.map((caller) => caller.success()));
}

/** Arrivals in the time after a refusal in which every replica has heard of it. */
function arrivalsInCooldown({ calls }: FakeApi, coolMs: number): number[] {
  const refusedMs = calls.filter(({ status }) => status === 429).map(({ atMs }) => atMs);
  return calls
    .map(({ atMs }) => atMs)
    .filter((atMs) =>
      refusedMs.some((since) => atMs > since + HORIZON_MS + SLACK_MS && atMs < since + coolMs),
    );
}

describe("four processes whose bucket is four times too fast", () => {
  it("send nothing after a 429 until its Retry-After is over, each time", async () => {
    const isOver = secondCap(50);
    const api = await apis.start((call) => (isOver(call) ? refusal("2") : {}));

    await runCallers(api, { rate: "200/s" }, 50);

    expect(api.calls).toHaveLength(200);
    expect(api.withStatus(429).length).toBeGreaterThan(0);
    expect(arrivalsInCooldown(api, 2_000)).toEqual([]);
  });

  it("start again at a part of their rate after the cooldown", async () => {
    const api = await apis.start((_call, number) => (number === 40 ? refusal("3") : {}));

    await runCallers(api, { rate: "200/s" }, 150);

    const [{ atMs: refusedMs }] = api.withStatus(429) as unknown as [{ atMs: number }];
    const after = api.calls.map(({ atMs }) => atMs).filter((atMs) => atMs >= refusedMs + 3_000);
    const first = after.filter((atMs) => atMs < after[0]! + 500);
    expect(arrivalsInCooldown(api, 3_000)).toEqual([]);
    expect(after.length).toBeGreaterThan(400);
    // All of the rate would be 100; a quarter that grows to two fifths is 33.
    expect(first.length).toBeLessThanOrEqual(50);
  });

  it("cut their rate once for all the 429s of one moment, when it is adaptive", async () => {
    let firstMs = Infinity;
    const api = await apis.start(({ atMs }, number) => {
      if (number === 60) firstMs = atMs;
      return atMs >= firstMs && atMs < firstMs + 1_000 ? refusal("1") : {};
    });
    const options = { rate: "200/s", adaptive: { floor: 0.1, recoverMs: 1_000_000 } };

    await runCallers(api, options, 40);

    const { rateFactor } = await sluices.open().bucket("downstream", options).peek();
    expect(api.withStatus(429).length).toBeGreaterThanOrEqual(1);
    expect(rateFactor).toBeGreaterThanOrEqual(0.7);
    expect(rateFactor).toBeLessThan(0.75);
  });
});

describe("a bucket whose responses state how long to wait", () => {
  /** How long a refused call cools the bucket down for another replica. */
  async function coolingAfter(answer: ApiAnswer, options: Partial<BucketOptions>): Promise<number> {
    const api = await apis.start(() => answer);
    const bucket = sluices.open().bucket("api", { rate: "1000/s", ...options });
    const other = sluices.open().bucket("api", { rate: "1000/s" });
    await bucket.throttled(() => fetch(api.url))();
    await bucket.peek();
    return (await other.peek()).coolingForMs;
  }

  it("takes an HTTP-date", async () => {
    const retryAfter = new Date(Date.now() + 40_000).toUTCString();

    const coolingMs = await coolingAfter(refusal(retryAfter), {});

    expect(coolingMs).toBeGreaterThan(20_000);
    expect(coolingMs).toBeLessThanOrEqual(40_000);
  });

  it.each([
    "31536000",
    new Date(Date.now() + 31_536_000_000).toUTCString(),
    "99999999999999999999",
  ])("waits no longer than maxCooldownMs for %j", async (retryAfter) => {
    const coolingMs = await coolingAfter(refusal(retryAfter), { maxCooldownMs: 60_000 });

    expect(coolingMs).toBeGreaterThan(30_000);
    expect(coolingMs).toBeLessThanOrEqual(60_000);
  });

  it("waits at most a quarter of an hour by default", async () => {
    const coolingMs = await coolingAfter(refusal("31536000"), {});

    expect(coolingMs).toBeGreaterThan(870_000);
    expect(coolingMs).toBeLessThanOrEqual(900_000);
  });

  it.each(["1e400", "-5", "soon", "NaN", "Infinity", "9".repeat(400), "0x10"])(
    "ignores the hostile Retry-After %j",
    async (retryAfter) => {
      const coolingMs = await coolingAfter(refusal(retryAfter), {});

      expect(coolingMs).toBeGreaterThan(0);
      expect(coolingMs).toBeLessThanOrEqual(1_000);
    },
  );

  it("cools down for an error that a client throws instead of returning the response", async () => {
    const bucket = sluices.open().bucket("api", { rate: "1000/s" });
    const error = Object.assign(new Error("Too many"), {
      status: 429,
      headers: { "retry-after": "30" },
    });

    await expect(bucket.throttled(() => Promise.reject(error))()).rejects.toBe(error);

    expect((await bucket.peek()).coolingForMs).toBeGreaterThan(20_000);
  });

  it("cools only the key whose limits were hit, and the bucket where keys have none", async () => {
    const options = { rate: "1000/s", perKey: { rate: "500/s" } };
    const api = await apis.start(({ path }) => (path === "/a" ? refusal("30") : {}));
    const bucket = sluices.open().bucket("api", options);
    const other = sluices.open().bucket("api", options);
    const call = bucket.throttled((key: string) => fetch(`${api.url}/${key}`), {
      key: (key) => key,
    });

    await call("a");
    await call("b");

    expect((await other.tryDraw({ key: "a" })).allowed).toBe(false);
    expect((await other.tryDraw({ key: "b" })).allowed).toBe(true);
    expect((await other.peek({ key: "a" })).coolingForMs).toBeGreaterThan(20_000);
    expect((await other.peek({ key: "b" })).coolingForMs).toBe(0);
    expect((await other.peek()).coolingForMs).toBe(0);
  });

  it("also cuts its rate for a 429 without a retry time", async () => {
    const adaptive = { floor: 0.1, recoverMs: 1_000_000 };
    const api = await apis.start(() => refusal("0"));
    const bucket = sluices.open().bucket("api", { rate: "1000/s", adaptive });

    await bucket.throttled(() => fetch(api.url))();

    const { coolingForMs, rateFactor } = await bucket.peek();
    expect(coolingForMs).toBe(0);
    expect(rateFactor).toBeCloseTo(0.7, 2);
  });

  it("does not raise its rate again while nothing is sent", async () => {
    const adaptive = { floor: 0.1, recoverMs: 100 };
    const api = await apis.start(() => refusal("30"));
    const bucket = sluices.open().bucket("api", { rate: "1000/s", adaptive });
    await bucket.throttled(() => fetch(api.url))();
    const { coolingForMs } = await bucket.peek();

    await waitUntil(
      async () => (await bucket.peek()).coolingForMs < coolingForMs - 300,
      "three times recoverMs have passed",
    );

    expect((await bucket.peek()).rateFactor).toBeCloseTo(0.7, 2);
  });
});

describe("a bucket with a feedback of the user's own", () => {
  it("reads no response when it is false, of the bucket or of one function", async () => {
    const api = await apis.start(() => refusal("30"));
    const sluice = sluices.open();
    const deaf = sluice.bucket("deaf", { rate: "1000/s", feedback: false });
    const bucket = sluice.bucket("api", { rate: "1000/s" });

    await deaf.throttled(() => fetch(api.url))();
    await bucket.throttled(() => fetch(api.url), { feedback: false })();

    expect((await deaf.peek()).coolingForMs).toBe(0);
    expect((await bucket.peek()).coolingForMs).toBe(0);
  });

  it("follows the result of the function, and not the status", async () => {
    const api = await apis.start(({ path }) =>
      path === "/busy" ? { body: "busy" } : refusal("30"),
    );
    const bucket = sluices.open().bucket("api", {
      rate: "1000/s",
      feedback: (result) => (result === "busy" ? { coolMs: 40_000 } : undefined),
    });
    const call = bucket.throttled(async (path: string) => (await fetch(api.url + path)).text());

    await call("/refused");
    const before = await bucket.peek();
    await call("/busy");

    expect(before.coolingForMs).toBe(0);
    expect((await bucket.peek()).coolingForMs).toBeGreaterThan(30_000);
  });

  it("cools the whole bucket for one key when the function returns that", async () => {
    const bucket = sluices.open().bucket("api", {
      rate: "1000/s",
      perKey: { rate: "500/s" },
      feedback: () => ({ coolMs: 40_000, scope: "bucket" }),
    });

    await bucket.throttled(async () => "ok", { key: "a" })();

    expect((await bucket.peek()).coolingForMs).toBeGreaterThan(30_000);
  });

  it.each([
    [
      "throws",
      () => {
        throw new Error("boom");
      },
    ],
    ["answers null", () => null],
    ["answers NaN", () => ({ coolMs: Number.NaN })],
    ["answers a number below zero", () => ({ coolMs: -1 })],
  ])("is unaffected when the function %s", async (_what, feedback) => {
    const options = { rate: "1000/s", feedback: feedback as never };
    const bucket = sluices.open({ logger: { warn() {}, error() {} } }).bucket("api", options);
    const failure = new Error("of the call itself");

    await expect(bucket.throttled(async () => "ok")()).resolves.toBe("ok");
    await expect(bucket.throttled(() => Promise.reject(failure))()).rejects.toBe(failure);

    expect((await bucket.peek()).coolingForMs).toBe(0);
  });

  it("does not fail a call whose cost exceeds a newer policy", async () => {
    const bucket = sluices.open().bucket("api", { rate: "1000/s", burst: 50 });
    const call = bucket.throttled(
      async () => {
        await bucket.configure({ rate: "1000/s", burst: 10 });
        await waitUntil(async () => (await bucket.peek()).policyFrom === "configured", "it holds");
        return "ok";
      },
      { cost: 50 },
    );

    await expect(call()).resolves.toBe("ok");
  });
});

describe('a bucket with pace: "headers"', () => {
  /** Lets `quota` calls pass in each window of so many ms, and says what is left as GitHub does, but in seconds from now. */
  function quotaApi(quota: number, windowMs: number): Promise<FakeApi> {
    let startMs = -Infinity;
    let used = 0;
    return apis.start(({ atMs }) => {
      if (atMs >= startMs + windowMs) [startMs, used] = [atMs, 0];
      used += 1;
      if (used > quota) return refusal("1");
      const resetMs = Math.ceil(startMs + windowMs - atMs);
      const headers = {
        "x-ratelimit-limit-requests": String(quota),
        "x-ratelimit-remaining-requests": String(quota - used),
        "x-ratelimit-reset-requests": `${resetMs}ms`,
      };
      return { headers };
    });
  }

  it("slows four processes down to the remaining quota, before any 429", async () => {
    const api = await quotaApi(120, 2_000);

    await runCallers(api, { rate: "200/s", pace: "headers" }, 75);

    expect(api.calls).toHaveLength(300);
    expect(api.withStatus(429)).toEqual([]);
    // At its own rate it would use up each quota long before the window ends.
    const spanMs = api.calls.at(-1)!.atMs - api.calls[0]!.atMs;
    expect(spanMs).toBeGreaterThan(4_000);
  });

  it("is never faster than its rate, however much quota remains", async () => {
    const api = await quotaApi(1_000_000, 2_000);
    const bucket = sluices.open().bucket("api", { rate: "100/s", pace: "headers" });
    const call = bucket.throttled(async () => (await fetch(api.url)).arrayBuffer());
    await call();

    await Promise.all(Array.from({ length: 100 }, call));

    const [first, last] = [api.calls[1]!.atMs, api.calls.at(-1)!.atMs];
    expect(last - first).toBeGreaterThan(900);
  });

  it("is as fast as its rate again when the quota is full again", async () => {
    const bucket = sluices.open().bucket("api", { rate: "200/s", pace: "headers" });
    const headers = {
      "x-ratelimit-remaining-requests": "0",
      "x-ratelimit-reset-requests": "500ms",
    };
    await bucket.throttled(async () => ({ status: 200, headers }))();
    await bucket.peek();
    const slots = await Promise.all(Array.from({ length: 20 }, () => bucket.draw()));

    const [first, ...rest] = slots.map(({ atMs }) => atMs);
    const gapsMs = rest.map((atMs, index) => atMs - [first, ...rest][index]!);
    expect(slots[0]!.waitedMs).toBeGreaterThan(300);
    const [median] = gapsMs.toSorted((a, b) => a - b).slice(9);
    expect(median).toBeCloseTo(5, 0);
  });
});
