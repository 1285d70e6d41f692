import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  ClosedError,
  InvalidOptionError,
  RedisRequiredError,
  createSluice,
  fixedWindow,
  leakyBucket,
  slidingLog,
  throttled,
  tokenBucket,
  type Bucket,
  type BucketOptions,
  type Sluice,
  type SluiceOptions,
} from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";

const tierOf = (): string => "free";
const FIFTY = tokenBucket({ capacity: 50, refill: "1/s" });

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
  it("paces this process, and says once that it is alone", async () => {
    const { sluice, warnings } = open();

    const slot = await sluice.bucket("b", { rate: "10/s" }).draw();
    await sluice.bucket("c", { rate: "10/s" }).draw();

    expect(slot.bucket).toBe("b");
    expect(warnings).toEqual([expect.stringContaining("No Redis was named")]);
  });

  it('says nothing if "memory" was asked for, whatever $REDIS_URL says', async () => {
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

  it("is refused in production by an empty $REDIS_URL too", () => {
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
    ["limits", { limits: [fixedWindow(10, "1s")] }],
  ])("names %s, where that is what differs", (option, again) => {
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
    "says of shards that are %j what to give instead",
    (shards) => {
      const create = (): unknown => createSluice({ shards } as never);

      expect(create).toThrow('give a list of URLs such as ["redis://127.0.0.1:6379"]');
    },
  );

  it.each([
    ["", { rate: "1/s" }, "name"],
    ["a{b}", { rate: "1/s" }, "name"],
    ["b", { rate: "0/s" }, "rate"],
    ["b", {}, "rate"],
    ["b", undefined, "options"],
    ["b", { rate: "1/s", burst: 0 }, "burst"],
    ["b", { rate: "1/s", burst: 2.5 }, "burst"],
    ["b", { rate: "1/s", perKey: { rate: "0/s" } }, "rate"],
    ["b", { rate: "1/s", perKey: { rates: "5/s" } }, "rates"],
    ["b", { rate: "1/s", perKey: "5/s" }, "perKey"],
    ["b", { rate: "1/s", perKey: null }, "perKey"],
    ["b", { rate: "1/s", perKey: Promise.resolve({ rate: "5/s" }) }, "perKey"],
    ["b", { limits: [] }, "limits"],
    ["b", { perKey: { limits: [] } }, "limits"],
    ["b", { limits: ["5/s"] }, "limits[0]"],
    ["b", { limits: [{ kind: "leaky-bucket", count: Number.NaN }] }, "limits[0]"],
    ["b", { rate: "1/s", concurrency: 0 }, "concurrency"],
    ["b", { rate: "1/s", shares: { low: 2 } }, "shares.low"],
    ["b", { rate: "1/s", maxWaiting: -1 }, "maxWaiting"],
    ["b", { rate: "1/s", onStoreDown: "retry" }, "onStoreDown"],
    ["b", { rate: "1/s", onStoreDown: { local: 0 } }, "onStoreDown"],
    ["b", { rate: "1/s", onStoreDown: { local: 1.5 } }, "onStoreDown"],
    ["b", { rate: "1/s", onStateLost: "half" }, "onStateLost"],
    ["b", { rate: "1/s", adaptive: { floor: 0, recoverMs: 1_000 } }, "adaptive.floor"],
    ["b", { rate: "100/s", burst: 50, limits: [slidingLog(20, "1s")] }, "burst"],
    ["b", { limits: [fixedWindow(5, "1d"), leakyBucket("5/s", { burst: 50 })] }, "burst"],
    ["b", { limits: [fixedWindow(5, "1d"), FIFTY] }, "capacity"],
    ["b", { rate: { calls: 1, per: "1s", burst: 5 } }, "rate.burst"],
    ["b", { perKey: { tiers: {}, tierOf, rate: "5/s" } }, "perKey.rate"],
    ["b", { perKey: { tiers: {}, tierOf, tiersof: tierOf } }, "perKey.tiersof"],
  ])("refuses a bucket %j with %j by the name of the option", (name, policy, option) => {
    const { sluice } = open();
    const create = (): unknown => sluice.bucket(name, policy as never);

    expect(create).toThrow(InvalidOptionError);
    expect(create).toThrow(`option "${option}"`);
  });

  it.each([
    [{ perKey: { rate: "1/x" } }, 'bucket("q"): perKey: option "rate" is "1/x"'],
    [
      { perKey: { tiers: { free: { rate: "1/x" } }, tierOf } },
      'bucket("q"): perKey.tiers.free: option "rate" is "1/x"',
    ],
    [
      { perKey: { tiers: { "a b": { rat: "1/s" } }, tierOf } },
      'bucket("q"): perKey.tiers["a b"]: option "rat" is "1/s"',
    ],
    [
      { perKey: { tiers: { free: null }, tierOf } },
      'bucket("q"): option "perKey.tiers.free" is null',
    ],
    [{ perKey: [FIFTY] }, "give a list of limits as { limits: [...] }"],
    [
      { perKey: { tiers: {}, tierOf, rate: "5/s" } },
      'option "perKey.rate" is "5/s"; give limits inside each tier',
    ],
    [
      { perKey: { tiers: {}, tierOf, tierOff: 1 } },
      'option "perKey.tierOff" is 1; there is no such option; did you mean tierOf?',
    ],
    [
      { limits: [fixedWindow(5, "1d"), FIFTY] },
      "lets no more than 5 pass at once; give a capacity of 5 or less",
    ],
    [
      { perKey: { limits: [FIFTY] }, limits: [fixedWindow(5, "1d")] },
      'bucket("q"): perKey: option "capacity" is 50',
    ],
    [
      { rate: { calls: 1, per: "1s", burst: 5 } },
      'option "rate.burst" is 5; a rate has only calls and per',
    ],
    [{}, 'bucket("q"): option "rate" is undefined; a bucket needs a limit'],
    [{ limits: [] }, "a bucket needs a limit"],
  ])("says of %j where it is wrong: %s", (policy, message) => {
    const { sluice } = open();
    const create = (): unknown => sluice.bucket("q", policy as never);

    expect(create).toThrow(message);
  });

  it("says where a key's limits are wrong that a function gave", async () => {
    const { sluice } = open();
    const bucket = sluice.bucket("q", { perKey: () => ({ rate: "1/x" as string }) });

    const refused = await rejectionOf(bucket.draw({ key: "k" }));

    expect(refused).toMatchObject({
      message: expect.stringContaining('bucket("q"): perKey: option "rate"'),
    });
  });

  it("shows no password in what it refuses", () => {
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
  it("paces on a sluice of the process's own", async () => {
    const warned = vi.spyOn(console, "warn").mockImplementation(() => {});
    const double = throttled(async (n: number) => n * 2, { bucket: "twice", rate: "1000/s" });

    await expect(Promise.all([double(1), double(2)])).resolves.toEqual([2, 4]);

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
  ])("knows of %j which option was meant: %s", (options, meant) => {
    const wrap = (): unknown => throttled(async () => 1, options as never);

    expect(wrap).toThrow(`did you mean ${meant}?`);
  });

  it("takes concurrency and feedback for those of the function, not of its bucket", async () => {
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

    await Promise.all([first(), first(), first()]);
    await second();

    expect(most).toBe(1);
    expect(heard).toEqual(["done", "done", "done"]);
  });
});
