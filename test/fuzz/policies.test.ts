import fc from "fast-check";
import { expect, it } from "vitest";
import {
  concurrency,
  createSluice,
  fixedWindow,
  leakyBucket,
  slidingWindow,
  type Bucket,
  type Key,
  type NamedKeys,
} from "sluice";
import {
  hostileJson,
  hostileName,
  hostileNumber,
  hostileOptions,
  hostileText,
  hostileValue,
} from "./support/hostile.ts";
import { forAll, outcomeOf, SILENT } from "./support/outcomes.ts";

const rate = fc.oneof(fc.constantFrom("100/s", "1/min", { calls: 5, per: "1s" }), hostileText);
const burst = fc.oneof(fc.integer({ min: 1, max: 100 }), hostileNumber);
const limit = fc.oneof(
  fc.constantFrom(leakyBucket("5/s", { unit: "tokens" }), slidingWindow(9, "1s"), concurrency(2)),
  fc.constantFrom(fixedWindow(9, "1d", { align: { at: "00:00", timeZone: "Europe/Berlin" } })),
  hostileJson,
);
const limits = { rate, burst, concurrency: burst, limits: fc.array(limit, { maxLength: 10 }) };
const limitsOptions = hostileOptions(limits);
const tierOf = fc.func(fc.oneof(fc.constantFrom("free", "paid"), hostileText));
const ofLevel = fc.oneof(
  limitsOptions,
  fc.constant(undefined),
  fc.func(limitsOptions),
  hostileOptions({ tiers: hostileOptions({ free: limitsOptions }), tierOf: tierOf }),
);
const perKey = fc.oneof(
  fc.array(ofLevel, { maxLength: 4 }),
  fc.dictionary(
    fc.oneof(fc.constantFrom("address", "email", "__proto__", "rate"), hostileName),
    ofLevel,
  ),
  limitsOptions,
  fc.func(limitsOptions),
  hostileOptions({
    tiers: fc.oneof(hostileOptions({ free: limitsOptions, paid: limitsOptions }), hostileValue),
    tierOf: fc.oneof(tierOf, fc.func(hostileValue)),
  }),
);
const part = fc.oneof(fc.double({ min: 0, max: 1 }), hostileNumber);
const policy = {
  ...limits,
  perKey,
  shares: hostileOptions({ low: part, normal: part, high: part, critical: part }),
};
const whole = fc.oneof(fc.nat(), hostileNumber);
const bucketOptions = hostileOptions({
  ...policy,
  maxWaiting: whole,
  breaker: fc.oneof(
    fc.constant(false),
    hostileOptions({ failures: whole, coolMs: whole, maxCoolMs: whole }),
  ),
  maxCooldownMs: whole,
  feedback: fc.oneof(fc.constant(false), hostileValue),
  adaptive: hostileOptions({ floor: part, recoverMs: whole }),
  pace: fc.constant("headers"),
  onStoreDown: fc.oneof(fc.constantFrom("wait", "open"), hostileOptions({ local: part })),
  onStateLost: fc.constantFrom("empty", "full"),
});
const name = fc.oneof(
  fc.constantFrom("acme", "127.0.0.1", "::1", "__proto__", "a{b}"),
  hostileName,
);
const key = fc.oneof(
  name,
  fc.array(fc.oneof(name, hostileValue), { maxLength: 4 }),
) as fc.Arbitrary<Key>;
const keys = fc.oneof(
  fc.dictionary(fc.oneof(fc.constantFrom("address", "email", "__proto__"), hostileName), name, {
    maxKeys: 4,
  }),
  hostileValue,
) as fc.Arbitrary<NamedKeys>;

/** A bucket that was made answers, for all keys or for one. */
async function assertAnswers(bucket: Bucket, forKey: Key, forKeys?: NamedKeys): Promise<void> {
  for (const options of [undefined, { key: forKey }, { keys: forKeys }]) {
    const tried = await outcomeOf(() => bucket.tryDraw(options));
    if (!tried.worked) continue;
    const { allowed, retryAfterMs, slot } = tried.value;
    expect(allowed ? retryAfterMs === 0 : retryAfterMs > 0).toBe(true);
    slot?.release();
  }
}

it("reads any policy of a bucket, or says what is wrong", async () => {
  const given = fc.tuple(fc.oneof(hostileName, fc.constant("a")), bucketOptions, key, keys);
  await forAll(1_000, given, async ([bucketName, options, forKey, forKeys]) => {
    const sluice = createSluice({ logger: SILENT });
    const made = await outcomeOf(() => sluice.bucket(bucketName, options));
    if (made.worked) await assertAnswers(made.value, forKey, forKeys);
    // A second declaration is compared with the first.
    if (made.worked) await outcomeOf(() => sluice.bucket(bucketName, options));
    await sluice.close();
  });
});

it("configures, pauses and shows a bucket, or says what is wrong and leaves it as it was", async () => {
  const sluice = createSluice({ logger: SILENT });
  let buckets = 0;
  const change = fc.oneof(fc.constant("code" as never), hostileOptions(policy));
  const forMs = hostileOptions({ forMs: whole });
  const given = fc.tuple(change, forMs, hostileOptions({ key, keys }), key);
  await forAll(400, given, async ([options, paused, looked, forKey]) => {
    buckets += 1;
    const bucket = sluice.bucket(`b${buckets}`, { rate: "100/s", perKey: { rate: "10/s" } });
    await bucket.tryDraw({ key: "first" });
    const before = await bucket.peek();
    const configured = await outcomeOf(() => bucket.configure(options));
    const after = await bucket.peek();
    if (!configured.worked) expect(after.policy).toBe(before.policy);
    if (!configured.worked) expect(after.generation).toBe(before.generation);
    await assertAnswers(bucket, forKey);
    await outcomeOf(() => bucket.peek(looked));
    const unpaused = await bucket.peek();
    const hasPaused = await outcomeOf(() => bucket.pause(paused));
    const { pausedForMs, generation } = await bucket.peek();
    // A short pause may be over by now.
    expect(generation > unpaused.generation).toBe(hasPaused.worked);
    if (!hasPaused.worked) expect(pausedForMs).toBe(0);
  });
  await sluice.close();
});

it("opens a sluice of any options, or says what is wrong", async () => {
  const url = fc.oneof(
    fc.constantFrom("redis://127.0.0.1:1", "rediss://u:p%40@h:1/2?db=1", "redis://h?__proto__=a"),
    fc.tuple(hostileText, hostileText).map(([user, host]) => `redis://${user}@${host}`),
    fc.webUrl(),
    hostileText,
  );
  const options = hostileOptions({
    redis: fc.oneof(url, hostileOptions({ host: hostileText, port: hostileNumber })),
    shards: fc.array(url),
    prefix: hostileName,
    storeTimeoutMs: whole,
    breaker: hostileOptions({ failures: whole, probeMs: whole }),
    logger: fc.constant(SILENT),
  });
  const listening = fc.tuple(fc.oneof(fc.constant("store"), hostileText), hostileValue);
  await forAll(1_000, fc.tuple(options, listening), async ([given, [event, listener]]) => {
    const withLogger = (): never =>
      (typeof given === "object" && given !== null && !("logger" in given)
        ? Object.defineProperty(Object.create(given), "logger", { value: SILENT, enumerable: true })
        : given) as never;
    const opened = await outcomeOf(() => createSluice(withLogger()));
    if (!opened.worked) return;
    await outcomeOf(() => opened.value.on(event as never, listener as never));
    await outcomeOf(() => opened.value.off(event as never, listener as never));
    await opened.value.close();
  });
});
