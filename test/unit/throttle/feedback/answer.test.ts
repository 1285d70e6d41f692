import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { interpret, readAnswer } from "../../../../src/throttle/feedback/answer.ts";
import { headerOf } from "../../../../src/throttle/feedback/headers.ts";

const nowMs = Date.UTC(2026, 10, 21, 12, 0, 0);
const resetAt = String(nowMs / 1_000 + 90);

/** An error with the properties that a client gives its own. */
function errorWith(properties: object): Error {
  return Object.assign(new Error("the call failed"), properties);
}

function throwing(): never {
  throw new Error("hostile");
}

/** As stripe-node builds it: the headers are kept on the error and on what it was made of. */
function stripeError(raw: { type: string; statusCode?: number; headers?: object }): Error {
  const { statusCode, headers } = raw;
  return errorWith({ type: "StripeRateLimitError", rawType: raw.type, raw, statusCode, headers });
}

/** As axios builds it, with the request's own headers nearby. */
function axiosError(status: number, headers: object): Error {
  const config = { headers: { "retry-after": "999" }, url: "https://api.example" };
  const response = { status, statusText: "", headers, config, data: {}, request: {} };
  return errorWith({ name: "AxiosError", isAxiosError: true, config, response, status });
}

const limited: readonly (readonly [string, unknown])[] = [
  ["a fetch Response", new Response("", { status: 429, headers: { "Retry-After": "2" } })],
  [
    "an undici response",
    { statusCode: 429, headers: { "retry-after": "2" }, body: {}, trailers: {} },
  ],
  [
    "undici's ResponseError",
    errorWith({
      code: "UND_ERR_RESPONSE",
      statusCode: 429,
      headers: { "retry-after": "2" },
      body: "",
    }),
  ],
  [
    "undici's RequestRetryError with raw headers",
    errorWith({
      code: "UND_ERR_REQ_RETRY",
      statusCode: 429,
      headers: ["Retry-After", "2"],
      data: {},
    }),
  ],
  [
    "an axios response",
    { status: 429, headers: new Map([["Retry-After", "2"]]), data: "", config: {} },
  ],
  ["an AxiosError", axiosError(429, { "retry-after": "2" })],
  [
    "OpenAI's RateLimitError",
    errorWith({
      status: 429,
      headers: new Headers({ "retry-after": "2" }),
      requestID: "req_1",
      code: "rate_limit",
    }),
  ],
  [
    "a Stripe error",
    stripeError({ type: "rate_limit_error", statusCode: 429, headers: { "retry-after": "2" } }),
  ],
  [
    "a Stripe error by its type",
    stripeError({ type: "rate_limit_error", headers: { "retry-after": "2" } }),
  ],
  [
    "what a Stripe error was made of",
    { raw: { statusCode: 429, headers: { "retry-after": "2" } } },
  ],
  [
    "Octokit's RequestError",
    errorWith({
      name: "HttpError",
      status: 429,
      request: { method: "GET", url: "/", headers: { "retry-after": "999" } },
      response: { status: 429, url: "/", headers: { "retry-after": "2" }, data: {} },
    }),
  ],
  [
    "Got's HTTPError",
    errorWith({
      name: "HTTPError",
      response: { statusCode: 429, headers: { "retry-after": "2" } },
    }),
  ],
  [
    "ky's HTTPError",
    errorWith({ response: new Response("", { status: 429, headers: { "retry-after": "2" } }) }),
  ],
];

describe("an answer that limits", () => {
  it.each(limited)("is read from %s", (_kind, given) => {
    expect(interpret(given, nowMs).answer).toMatchObject({
      status: 429,
      refused: true,
      afterMs: 2_000,
    });
  });

  it.each(limited)("is read from an error two causes above %s", (_kind, given) => {
    const wrapped = new Error("outer", { cause: new Error("inner", { cause: given }) });

    expect(interpret(wrapped, nowMs).answer).toMatchObject({ status: 429, afterMs: 2_000 });
  });

  it("is not looked for at the end of an endless chain", () => {
    let chain: Error = errorWith({ status: 429 });
    for (let depth = 0; depth < 50; depth++) chain = new Error("outer", { cause: chain });

    expect(interpret(chain, nowMs).answer).toMatchObject({ status: undefined, refused: false });
  });

  it("counts more than the 502 that was made of it", () => {
    const outer = errorWith({ status: 502, cause: axiosError(429, { "retry-after": "2" }) });

    expect(interpret(outer, nowMs).answer).toMatchObject({ status: 429, refused: true });
  });

  it("hands its headers on as the client keeps them", () => {
    const { headers } = interpret(axiosError(429, { "X-Request-Id": "7" }), nowMs);

    expect(headerOf(headers, "x-request-id")).toBe("7");
  });

  it.each([
    [429, {}, true],
    [503, {}, true],
    [503, { "retry-after": "1" }, true],
    [403, {}, false],
    [403, { "x-ratelimit-remaining": "12" }, false],
    [403, { "x-ratelimit-remaining": "0" }, true],
    [403, { "retry-after": "60" }, true],
    [500, { "retry-after": "1" }, false],
    [200, { "x-ratelimit-remaining": "0" }, false],
  ])("is one of %d with %j: %j", (status, headers, refused) => {
    expect(interpret({ status, headers }, nowMs).answer.refused).toBe(refused);
  });

  it.each([
    { "x-ratelimit-limit": "0", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "60" },
    { "ratelimit-limit": "0", "ratelimit-remaining": "0", "ratelimit-reset": "60" },
    { ratelimit: "limit=0, remaining=0, reset=60" },
    { ratelimit: '"0-in-1min"; r=0; t=60', "ratelimit-policy": '"0-in-1min"; q=0; w=60' },
  ])("is none of 200 or 403 with the headers of express-slow-down, %j", (quota) => {
    const headers = { ...quota, "retry-after": "60" };

    const refused = [200, 403, 429].map(
      (status) => interpret({ status, headers }, nowMs).answer.refused,
    );

    expect(refused).toEqual([false, false, true]);
  });

  it("is one of 403 with a used-up quota beside one of size 0", () => {
    const headers = {
      ratelimit: '"none";r=0;t=60, "minute";r=0;t=60',
      "ratelimit-policy": '"none";q=0, "minute";q=5',
    };

    expect(interpret({ status: 403, headers }, nowMs).answer.refused).toBe(true);
  });
});

describe("a GraphQL result that Shopify throttled", () => {
  const body = {
    errors: [{ message: "Throttled", extensions: { code: "THROTTLED" } }],
    extensions: { cost: { requestedQueryCost: 752, actualQueryCost: null } },
  };

  it.each([
    ["the parsed body", body],
    ["an axios response", { status: 200, headers: {}, data: body }],
    [
      "a result of its own client",
      { data: undefined, errors: { networkStatusCode: 200, graphQLErrors: body.errors } },
    ],
    [
      "an error of its own client",
      errorWith({ body: { errors: { graphQLErrors: body.errors } }, headers: {} }),
    ],
  ])("is limited, as %s", (_kind, given) => {
    expect(interpret(given, nowMs).answer).toMatchObject({ status: 200, refused: true });
  });

  it("is not one whose error is another", () => {
    expect(
      interpret({ errors: [{ extensions: { code: "ACCESS_DENIED" } }] }, nowMs).answer,
    ).toMatchObject({ status: undefined, refused: false });
  });
});

describe("an answer that does not limit", () => {
  it.each([
    ["a Response", new Response("", { status: 200 })],
    ["an axios response", { status: 200, headers: {}, data: { errors: "none" } }],
    ["a 202 that says when to ask again", { status: 202, headers: { "retry-after": "5" } }],
  ])("asks for no wait, as %s", (_kind, given) => {
    expect(interpret(given, nowMs).answer).toMatchObject({ refused: false, afterMs: undefined });
  });

  it.each([
    undefined,
    null,
    "429",
    429,
    [],
    {},
    { id: 1, name: "Ada" },
    { status: "active" },
    { status: 7 },
    { status: 429.5 },
    { status: Number.NaN, headers: {} },
    new Error("fetch failed", { cause: errorWith({ code: "ECONNREFUSED" }) }),
  ])("is not seen in %j", (given) => {
    expect(interpret(given, nowMs).answer).toMatchObject({ status: undefined, refused: false });
  });
});

describe("what is read of a response without further knowledge", () => {
  it.each(["Retry-After", "a body"])("is read of a Response by %s", async (by) => {
    const headers = by === "a body" ? {} : { "retry-after": "30" };
    const response = Response.json({ retry_after: 30 }, { status: 429, headers });

    expect(await readAnswer(response)).toMatchObject({ refused: true, afterMs: 30_000 });
    expect(await response.json()).toEqual({ retry_after: 30 });
  });

  it("comes at once where no body has to be read", () => {
    expect(readAnswer(axiosError(429, { "retry-after": "2" }))).toMatchObject({ afterMs: 2_000 });
    expect(readAnswer(new Response("ok"))).toBeInstanceOf(Promise);
  });

  it("is no more than the headers say where a body does not come to its end", async () => {
    const body = new ReadableStream({ start: (sink) => sink.enqueue(new Uint8Array(1)) });

    const answer = await readAnswer(new Response(body, { status: 429 }));

    expect(answer).toMatchObject({ refused: true, afterMs: 1_000, stated: false });
  });

  it("is the beginning of a body that is long", async () => {
    const chunk = new TextEncoder().encode(`{"retry_after":30,"more":"${"x".repeat(1_000_000)}"}`);
    let pulled = 0;
    const body = new ReadableStream({
      pull(sink) {
        sink.enqueue(chunk.subarray(pulled, pulled + 16_384));
        pulled += 16_384;
      },
    });

    const answer = await readAnswer(new Response(body, { status: 429 }));

    expect(answer).toMatchObject({ afterMs: 30_000 });
    expect(pulled).toBeLessThan(200_000);
  });

  it.each([404, 429, 500])("is left alone where a %i has been read already", async (status) => {
    const response = new Response("{}", { status });
    await response.text();

    expect(await readAnswer(response)).toMatchObject({ status });
  });

  it("is not read in node-fetch, where an unread clone would block the original", async () => {
    let clones = 0;
    const response = {
      status: 429,
      headers: new Headers({ "content-type": "application/json", "retry-after": "30" }),
      bodyUsed: false,
      body: { pipe() {}, on() {} },
      clone() {
        clones += 1;
        return response;
      },
      get data(): never {
        throw new Error("node-fetch warns of it");
      },
    };

    expect(await readAnswer(response)).toMatchObject({ afterMs: 30_000 });
    expect(clones).toBe(0);
  });
});

describe("a hostile value", () => {
  it("never makes it throw", () => {
    const proxy = Proxy.revocable({}, {});
    proxy.revoke();

    expect(readAnswer(proxy.proxy)).toMatchObject({ refused: false });
  });

  const cycle: Record<string, unknown> = {};
  Object.assign(cycle, { cause: cycle, response: cycle, data: cycle, errors: cycle });
  const revoked = Proxy.revocable({}, {});
  revoked.revoke();

  it.each([
    ["a cycle", cycle],
    ["a Proxy that throws", new Proxy({}, { get: throwing, has: throwing, ownKeys: throwing })],
    ["a Proxy that was revoked", revoked.proxy],
    [
      "endless errors",
      { errors: new Proxy([], { get: (_t, key) => (key === "length" ? 2 ** 53 - 1 : {}) }) },
    ],
  ])("gives no response, as %s", (_kind, given) => {
    expect(interpret(given, nowMs).answer).toMatchObject({ status: undefined, refused: false });
  });

  it("gives its status even when everything else throws", () => {
    const given = {
      status: 429,
      get headers() {
        return throwing();
      },
      get response() {
        return throwing();
      },
    };

    expect(interpret(given, nowMs).answer).toMatchObject({
      status: 429,
      afterMs: 1_000,
      stated: false,
    });
  });

  it("never throws, and asks for a whole wait or for none", () => {
    const text = fc.oneof(fc.string(), fc.constantFrom("0", "1e400", "-1", resetAt, "120"));
    const name = fc.constantFrom(
      "retry-after",
      "retry-after-ms",
      "x-ratelimit-remaining",
      "x-ratelimit-reset",
    );
    const headers = fc.oneof(fc.anything(), fc.dictionary(name, fc.oneof(text, fc.anything())));
    const status = fc.oneof(fc.constantFrom(200, 403, 429, 503), fc.anything());
    const plain = fc.record({ status, headers }, { requiredKeys: [] });
    const nested = fc.record(
      { response: plain, raw: plain, cause: plain, data: fc.anything() },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(fc.oneof(plain, nested, fc.anything()), (given) => {
        const answer = interpret(given, nowMs).answer;

        const afterMs = answer.afterMs ?? 0;
        expect(Number.isSafeInteger(afterMs) && afterMs >= 0).toBe(true);
      }),
      { numRuns: 10_000 },
    );
  });
});
