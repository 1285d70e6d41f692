import fc from "fast-check";
import { afterAll, describe, expect, it, vi } from "vitest";
import {
  createSluice,
  rateLimitHeaders,
  type Bucket,
  type Decision,
  type LimitDecision,
} from "sluice";
import {
  hostileJson,
  hostileNumber,
  hostileOptions,
  hostileText,
  hostileValue,
} from "./support/hostile.ts";
import { assertUnpolluted, forAll, outcomeOf, SILENT } from "./support/outcomes.ts";

/** A quota that is used up may be reset after a day. */
const LONGEST_MS = 90_000_000;
const sluice = createSluice({ logger: SILENT });
afterAll(() => sluice.close());
const USUAL: LimitDecision = {
  name: "a",
  unit: "calls",
  scope: "bucket",
  level: undefined,
  capacity: 1,
  windowMs: 1_000,
  remaining: 1,
  resetAfterMs: 1,
  retryAfterMs: 0,
};
let buckets = 0;

function freshBucket(pace?: "headers"): Bucket {
  buckets += 1;
  return sluice.bucket(`b${buckets}`, { rate: "100000/s", burst: 10, pace });
}

async function assertCool(bucket: Bucket): Promise<void> {
  const { coolingForMs, rateFactor } = await bucket.peek();
  expect(coolingForMs).toBeGreaterThanOrEqual(0);
  expect(coolingForMs).toBeLessThanOrEqual(LONGEST_MS);
  expect(rateFactor > 0 && rateFactor <= 1).toBe(true);
}

const delay = fc.oneof(
  fc.constantFrom("0", "1", "1.5", "1e99", "9".repeat(70), "-1", " 7 ", "0x10", "NaN", "1, 2"),
  fc.constantFrom("Fri, 31 Dec 9999 23:59:59 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Thu, 32 Jan"),
  fc.date({ noInvalidDate: true }).map((date) => date.toUTCString()),
  hostileText,
  hostileNumber,
);
const named = {
  "retry-after": delay,
  "Retry-After": fc.array(delay, { maxLength: 3 }),
  "x-ratelimit-remaining": delay,
  "x-ratelimit-reset": delay,
  "x-ratelimit-reset-requests": fc.constantFrom("6m0s", "1h1h1h", "9".repeat(64) + "s"),
  ratelimit: fc.oneof(fc.constantFrom('"a";r=1;t=1', '"a";'.repeat(999)), hostileText),
  "ratelimit-policy": fc.constantFrom('"a";q=1;w=1', '"a";q=999999999999999'),
};
const headers = fc.oneof(
  hostileOptions(named),
  hostileOptions(named).map((all) => Object.entries((all ?? {}) as object)),
  fc.constantFrom(
    "x".repeat(100_000),
    Array.from({ length: 50_000 }, () => ["a", "b"]),
  ),
);
const status = fc.oneof(fc.constantFrom(200, 403, 429, 503), hostileNumber);
const answer = fc.oneof(
  hostileOptions({
    status,
    statusCode: status,
    headers,
    response: hostileOptions({ status, headers, data: hostileJson }),
    cause: hostileOptions({ status, headers }),
    errors: fc.array(hostileOptions({ extensions: hostileJson })),
    type: fc.constant("StripeRateLimitError"),
  }),
  hostileValue,
);

describe("a downstream's answer, whatever it is,", () => {
  it("comes out as it went in, and cools for no more than a while", async () => {
    await forAll(500, fc.tuple(answer, fc.boolean()), async ([came, isThrown]) => {
      const bucket = freshBucket("headers");
      const call = bucket.throttled(async () => {
        if (isThrown) throw came;
        // In a list, since a promise would be awaited.
        return [came];
      });
      const outcome = await call().then(
        (value) => ({ value: value[0] }),
        (reason: unknown) => ({ value: reason }),
      );
      expect(outcome.value === came || Object.is(outcome.value, came)).toBe(true);
      assertUnpolluted();
      await assertCool(bucket);
    });
  });

  it("changes nothing when it cannot be read at all", async () => {
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();

    const rejected = freshBucket().throttled(() => Promise.reject(proxy))();

    await expect(rejected.catch((reason: unknown) => reason === proxy)).resolves.toBe(true);
  });

  it("is read by a function of one's own without harm", async () => {
    const own = hostileOptions({ coolMs: hostileNumber, scope: fc.constantFrom("key", "bucket") });
    const thrown = fc.oneof(hostileValue, fc.constant(Object.create(null)));
    await forAll(300, fc.tuple(own, thrown, fc.boolean()), async ([feedback, bad, throws]) => {
      const bucket = freshBucket();
      const read = (): never => {
        if (throws) throw bad;
        return feedback;
      };
      const settle = read as () => never;
      const call = bucket.throttled(() => 7, { feedback: read, settle });
      expect(await call()).toBe(7);
      await assertCool(bucket);
    });
  });

  it("comes out of fetch unharmed", async () => {
    const lines = fc.array(fc.tuple(fc.constantFrom(...Object.keys(named), "a"), delay));
    const given = fc.tuple(fc.constantFrom(200, 403, 429, 503), lines);
    const stub = vi.spyOn(globalThis, "fetch");
    await forAll(200, given, async ([code, pairs]) => {
      const sent = new Headers();
      for (const [name, value] of pairs) {
        // What HTTP cannot carry never comes.
        if (/^[ -~]*$/.test(String(value))) sent.append(name, String(value));
      }
      const sentOnce = new Response("body", { status: code, headers: sent });
      stub.mockResolvedValue(sentOnce);
      const bucket = freshBucket("headers");
      // A body that streams is sent once only: no second try, and so no wait.
      const init = { method: "POST", body: new ReadableStream(), duplex: "half" } as RequestInit;
      const response = await bucket.fetch("http://127.0.0.1/", init);
      expect(response.status).toBe(code);
      expect(await response.text()).toBe("body");
      await assertCool(bucket);
    });
    stub.mockRestore();
  });
});

it("headers are printable ASCII on one line each, or the decision is refused", async () => {
  const limit = hostileOptions({
    name: hostileText,
    unit: fc.oneof(fc.constantFrom("calls", "tokens", "content-bytes"), hostileText),
    scope: fc.constantFrom("bucket", "key"),
    capacity: hostileNumber,
    remaining: hostileNumber,
    windowMs: fc.option(hostileNumber, { nil: undefined }),
    resetAfterMs: hostileNumber,
    retryAfterMs: hostileNumber,
  });
  const decision = hostileOptions({
    allowed: fc.boolean(),
    limits: fc.array(limit, { maxLength: 3 }),
    limitedBy: hostileText,
    retryAfterMs: hostileNumber,
  });
  await forAll(1_000, fc.tuple(decision, fc.boolean()), async ([given, isWhole]) => {
    const made = await outcomeOf(() => rateLimitHeaders(isWhole ? completed(given) : given));
    if (!made.worked) return;
    for (const value of Object.values(made.value)) expect(value).toMatch(/^[ -~]+$/);
  });
});

/** What was left out, as a decision has it. */
function completed(given: Partial<Decision> | null): Decision {
  const some = Array.isArray(given?.limits) ? given.limits : [];
  const limits = some.map((limit: Partial<LimitDecision>) => ({ ...USUAL, ...limit }));
  const rest = { remaining: 1, resetAfterMs: 1, retryAfterMs: 0, limitedBy: undefined };
  return { allowed: true, ...rest, ...given, limits };
}
