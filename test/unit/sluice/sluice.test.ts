import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  ClosedError,
  InvalidOptionError,
  RedisRequiredError,
  createSluice,
  fixedWindow,
  throttled,
  type Bucket,
  type BucketOptions,
  type Sluice,
  type SluiceOptions,
} from "sluice";
import { fakeTimers } from "../../support/async/fake-timers.ts";
import { rejectionOf } from "../../support/async/rejection.ts";

let opened: Sluice[] = [];
beforeEach(() => {
  vi.stubEnv("REDIS_URL", "");
});
afterEach(async () => {
  await Promise.all(opened.map((sluice) => sluice.close()));
  opened = [];
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
});

function open(options: SluiceOptions = {}) {
  const warnings: string[] = [];
  const log = (_facts: object, message: string): void => void warnings.push(message);
  const sluice = createSluice({ logger: { warn: log, error: log }, ...options });
  opened.push(sluice);
  return { sluice, warnings };
}

describe("a sluice without Redis", () => {
  it("paces this process, and warns once that it is alone", async () => {
    const { sluice, warnings } = open();

    const slot = await sluice.bucket("b", { rate: "10/s" }).draw();
    await sluice.bucket("c", { rate: "10/s" }).draw();

    expect(slot.bucket).toBe("b");
    expect(warnings).toEqual([expect.stringContaining("No Redis was named")]);
  });

  it('logs nothing with "memory", whatever $REDIS_URL says', async () => {
    vi.stubEnv("REDIS_URL", "redis://127.0.0.1:1");
    const { sluice, warnings } = open({ redis: "memory" });

    await sluice.bucket("b", { rate: "10/s" }).draw();

    expect(warnings).toEqual([]);
  });

  it.each([
    ["in production", "production", {}],
    ["with requireRedis", "test", { requireRedis: true }],
    ["with requireRedis in production", "production", { requireRedis: true }],
  ])("is refused %s, before anything opens", (_where, environment, options) => {
    vi.stubEnv("NODE_ENV", environment);

    const opening = (): unknown => open(options);

    expect(opening).toThrow(RedisRequiredError);
    expect(opening).toThrow(
      '$REDIS_URL. If this process is to pace its own calls only, pass { redis: "memory" }.',
    );
  });

  it("is also refused in production with an empty $REDIS_URL", () => {
    vi.stubEnv("NODE_ENV", "production");
    vi.stubEnv("REDIS_URL", "");

    expect(() => open()).toThrow("createSluice() in production needs Redis");
  });

  it.each([
    ["memory is asked for", { redis: "memory" }],
    ["Redis is not required", { requireRedis: false }],
    ["Redis is named", { redis: "redis://127.0.0.1:1" }],
    ["shards are named", { shards: ["redis://127.0.0.1:1"] }],
  ])("is opened in production if %s", (_what, options) => {
    vi.stubEnv("NODE_ENV", "production");

    expect(() => open(options)).not.toThrow();
  });

  it("cannot be both required and left out", () => {
    const opening = (): unknown => open({ redis: "memory", requireRedis: true });

    expect(opening).toThrow(InvalidOptionError);
    expect(opening).toThrow('option "requireRedis" is true; redis is "memory"');
  });

  it("warns on the console when it has no logger", () => {
    const warned = vi.spyOn(console, "warn").mockImplementation(() => {});

    opened.push(createSluice());

    expect(warned).toHaveBeenCalledWith(expect.stringContaining("[sluice] No Redis"));
  });

  it("refuses queues", () => {
    const { sluice } = open();

    const bucket = sluice.bucket("b", { rate: "10/s" });

    expect(() => sluice.queue("jobs", { bucket })).toThrow(RedisRequiredError);
  });
});

describe("a sluice", () => {
  it("gives the same bucket for the same name and policy", () => {
    const { sluice } = open();

    const first = sluice.bucket("b", { rate: "60/min" });

    expect(sluice.bucket("b", { rate: "1/s" })).toBe(first);
  });

  it("refuses another policy for a bucket that it has", () => {
    const { sluice } = open();
    sluice.bucket("b", { rate: "10/s" });

    const again = (): unknown => sluice.bucket("b", { rate: "20/s", burst: 2 });

    expect(again).toThrow('bucket("b"): option "rate" is "20/s"; this sluice gave');
  });

  it.each<[string, BucketOptions]>([
    ["perKey", { rate: "10/s", perKey: { rate: "1/s" } }],
    ["shares", { rate: "10/s", shares: { low: 0.5 } }],
    ["fair", { rate: "10/s", fair: { weights: { gold: 2 } } }],
    ["fair", { rate: "10/s", fair: false }],
    ["limits", { limits: [fixedWindow(10, "1s")] }],
  ])("names %s, if that differs", (option, again) => {
    const { sluice } = open();
    sluice.bucket("b", { rate: "10/s" });

    expect(() => sluice.bucket("b", again)).toThrow(`bucket("b"): option "${option}" is`);
  });

  it.each([
    [{ redis: 5 }, "redis"],
    [{ redis: null }, "redis"],
    [{ redis: "" }, "redis"],
    [{ redis: "localhost" }, "redis"],
    [{ redis: "http://127.0.0.1" }, "redis"],
    [{ redis: { url: "redis://127.0.0.1" } }, "redis"],
    [{ redis: { socket: { host: "10.0.0.1" } } }, "redis"],
    [{ redis: { password: "p", database: 3 } }, "redis"],
    [{ redis: { rootNodes: [{ url: "redis://10.0.0.1" }] } }, "redis"],
    [{ redis: { name: "mymaster", sentinelRootNodes: [] } }, "redis"],
    [{ redis: { duplicate: () => {}, options: { username: "u", password: "p" } } }, "redis"],
    [{ redis: [] }, "redis"],
    [{ redis: { host: 5 } }, "redis"],
    [{ redis: { port: {} } }, "redis"],
    [{ redis: { port: 65_536 } }, "redis"],
    [{ redis: { port: "6379a" } }, "redis"],
    [{ prefix: "a:b" }, "prefix"],
    [{ storeTimeoutMs: 0 }, "storeTimeoutMs"],
    [{ breaker: { failures: 0 } }, "breaker.failures"],
    [{ breaker: { probeMs: 1.5 } }, "breaker.probeMs"],
    [{ logger: "pino" }, "logger"],
    [{ logger: { warn: () => {} } }, "logger"],
    [{ redisUrl: "redis://x" }, "redisUrl"],
    [Promise.resolve({ redis: "redis://x" }), "options"],
  ])("refuses %j by the name of the option", (options, option) => {
    const create = (): unknown => createSluice(options as SluiceOptions);

    expect(create).toThrow(InvalidOptionError);
    expect(create).toThrow(`option "${option}"`);
  });

  it.each([["redis://a"], [{ 0: "redis://a" }], [null]])(
    "explains what to give instead of the shards %j",
    (shards) => {
      const create = (): unknown => createSluice({ shards } as never);

      expect(create).toThrow('give a list of URLs such as ["redis://127.0.0.1:6379"]');
    },
  );

  it("hides the password of an option that it refuses", () => {
    const create = (): unknown => createSluice({ redisUrl: "redis://me:secret@db" } as never);

    expect(create).toThrow(
      expect.not.objectContaining({ value: expect.stringContaining("secret") }),
    );
    expect(create).toThrow(/redis:\/\/\*\*\*@db/);
  });

  it("refuses a bucket whose name is 1 MB long, in a short message", () => {
    const { sluice } = open();
    const create = (): unknown => sluice.bucket("x".repeat(1_000_000), { rate: "1/s" });

    expect(create).toThrow(InvalidOptionError);
    expect(create).toThrow(/^.{1,200}$/);
  });

  it("refuses everything once it is closed, and closes twice without harm", async () => {
    const { sluice } = open();
    const bucket = sluice.bucket("b", { rate: "1/s" });
    await bucket.draw();
    const waiting = rejectionOf(bucket.draw());

    await Promise.all([sluice.close(), sluice.close()]);

    expect(await waiting).toBeInstanceOf(ClosedError);
    expect(await rejectionOf(bucket.draw())).toBeInstanceOf(ClosedError);
    expect(() => sluice.bucket("c", { rate: "1/s" })).toThrow(ClosedError);
  });

  it.each<[string, (bucket: Bucket) => Promise<unknown>]>([
    ["peek", (bucket) => bucket.peek()],
    ["configure", (bucket) => bucket.configure({ rate: "2/s" })],
    ["pause", (bucket) => bucket.pause()],
    ["resume", (bucket) => bucket.resume()],
  ])("refuses to %s a bucket once it is closed", async (_what, steer) => {
    const { sluice } = open();
    const bucket = sluice.bucket("b", { rate: "1/s" });

    await sluice.close();

    expect(await rejectionOf(steer(bucket))).toBeInstanceOf(ClosedError);
  });

  it("is closed by await using", async () => {
    let bucket;
    {
      await using sluice = open().sluice;
      bucket = sluice.bucket("b", { rate: "1/s" });
      await bucket.draw();
    }

    expect(await rejectionOf(bucket.draw())).toBeInstanceOf(ClosedError);
  });
});

describe("the top-level throttled", () => {
  // Its sluice is never closed, and test files share a process: on the real clock, its reports would go on in other tests.
  const advance = fakeTimers();

  it("paces on a default sluice of the process", async () => {
    const warned = vi.spyOn(console, "warn").mockImplementation(() => {});
    const double = throttled(async (n: number) => n * 2, { bucket: "twice", rate: "1000/s" });

    const doubled = Promise.all([double(1), double(2)]);
    await advance(100);

    await expect(doubled).resolves.toEqual([2, 4]);

    expect(warned).toHaveBeenCalledTimes(1);
  });

  it.each([
    [{ rate: "1/s" }, "bucket"],
    [{ bucket: "b" }, "rate"],
    [{ bucket: "b", rate: "1/s", retries: 3 }, "retries"],
    [undefined, "options"],
  ])("refuses %j by the name of the option", (options, option) => {
    const wrap = (): unknown => throttled(async () => 1, options as never);

    expect(wrap).toThrow(InvalidOptionError);
    expect(wrap).toThrow(`option "${option}"`);
  });

  it.each([
    [{ bucket: "b", rate: "1/s", brst: 3 }, "burst"],
    [{ bucket: "b", rat: "1/s" }, "rate"],
    [{ bucket: "b", rate: "1/s", cots: 2 }, "cost"],
    [{ buckt: "b", rate: "1/s" }, "bucket"],
    // What Bottleneck, p-throttle and rate-limiter-flexible call it.
    [{ bucket: "b", minTime: 10 }, "rate"],
    [{ bucket: "b", limit: 5, interval: 1_000 }, "rate or limits"],
    [{ bucket: "b", rate: "1/s", maxConcurrent: 2 }, "concurrency"],
    [{ bucket: "b", points: 5 }, "limits or cost"],
    [{ bucket: "b", rate: "1/s", weight: 2 }, "cost"],
  ])("suggests the option meant by %j: %s", (options, meant) => {
    const wrap = (): unknown => throttled(async () => 1, options as never);

    expect(wrap).toThrow(`did you mean ${meant}?`);
  });

  it("passes concurrency and feedback to the function, not to its bucket", async () => {
    const heard: unknown[] = [];
    const feedback = (result: unknown): undefined => void heard.push(result);
    const own = { concurrency: 1, feedback };
    let running = 0;
    let most = 0;
    const call = async (): Promise<string> => {
      most = Math.max(most, ++running);
      await Promise.resolve();
      running -= 1;
      return "done";
    };
    const first = throttled(call, { bucket: "shared", rate: "1000/s", burst: 10, ...own });
    // Of the bucket they would make it another one, which is refused.
    const second = throttled(call, { bucket: "shared", rate: "1000/s", burst: 10 });

    const calls = Promise.all([first(), first(), first()]);
    await advance(100);
    await calls;
    const last = second();
    await advance(100);
    await last;

    expect(most).toBe(1);
    expect(heard).toEqual(["done", "done", "done"]);
  });
});
