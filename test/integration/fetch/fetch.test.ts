import { Redis } from "ioredis";
import { describe, expect, inject, it } from "vitest";
import type { Bucket, BucketOptions } from "sluice";
import { fakeApis, type ApiAnswer } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const apis = fakeApis();

const QUICK: BucketOptions = { rate: "1000/s" };
const refusal: ApiAnswer = { status: 429, headers: { "retry-after-ms": "200" }, body: "later" };

function openBucket(options: BucketOptions = QUICK): Bucket {
  return sluices.open().bucket("api", options);
}

/** Redis has no script at first, then that of the call. */
async function withoutScripts(call: () => Promise<unknown>): Promise<void> {
  const redis = new Redis(inject("redisUrl"));
  await redis.script("FLUSH");
  redis.disconnect();
  await call();
}

function streamOf(text: string): ReadableStream<Uint8Array> {
  return new Blob([text]).stream();
}

/** Only Node asks for it, and its types lack it. */
const HALF = { duplex: "half" } as const;

describe("the fetch of a bucket", () => {
  it("draws for each request, from the bucket that all replicas share", async () => {
    const api = await apis.start(() => ({ body: "ok" }));
    const options: BucketOptions = { rate: "1/h", burst: 10 };
    const [bucket, other] = [openBucket(options), openBucket(options)];

    const texts = await Promise.all(
      [bucket, other, bucket].map(async ({ fetch }) => (await fetch(api.url)).text()),
    );

    expect(texts).toEqual(["ok", "ok", "ok"]);
    expect((await other.peek()).limits[0]!.remaining).toBe(7);
  });

  it("draws with the options of with(), including a key", async () => {
    const api = await apis.start(() => ({}));
    const bucket = openBucket({ rate: "1/h", burst: 10, perKey: { rate: "1/h", burst: 20 } });

    await bucket.fetch.with({ key: "a" }).with({ key: undefined, cost: 3 })(api.url);

    const { limits } = await bucket.peek({ key: "a" });
    expect(limits.map(({ remaining }) => remaining)).toEqual([7, 17]);
  });

  it("resends a rejected request, not before the cooldown is over", async () => {
    const api = await apis.start((_call, number) => (number === 0 ? refusal : { body: "ok" }));

    const response = await openBucket().fetch(api.url, { method: "POST", body: "hello" });

    expect(response.status).toBe(200);
    expect(await response.text()).toBe("ok");
    expect(api.calls.map(({ method, body }) => `${method} ${body}`)).toEqual([
      "POST hello",
      "POST hello",
    ]);
    // Whole ms on two clocks.
    expect(api.calls[1]!.atMs - api.calls[0]!.atMs).toBeGreaterThan(195);
  });

  it("obeys the cooldown also when Redis has lost its scripts", async () => {
    const bucket = openBucket();
    const api = await apis.start((_call, number) => (number === 0 ? refusal : {}));
    await bucket.draw();
    await withoutScripts(() => bucket.draw());

    await bucket.fetch(api.url);

    expect(api.calls[1]!.atMs - api.calls[0]!.atMs).toBeGreaterThan(195);
  });

  it("returns the third rejection to its caller, with its body", async () => {
    const api = await apis.start(() => ({ ...refusal, headers: { "retry-after-ms": "20" } }));

    const response = await openBucket().fetch(api.url);

    expect(response.status).toBe(429);
    expect(await response.text()).toBe("later");
    expect(api.calls).toHaveLength(3);
  });

  it.each<[string, BucketOptions]>([
    ["to nothing", { feedback: false }],
    ["to a function that takes it for none", { feedback: () => undefined }],
    ["to a function that takes it for something else", { feedback: () => ({}) as never }],
  ])("returns a rejection unchanged when feedback is %s", async (_what, listening) => {
    const api = await apis.start(() => refusal);

    const response = await openBucket({ ...QUICK, ...listening }).fetch(api.url);

    expect(response.status).toBe(429);
    expect(await response.text()).toBe("later");
    expect(api.calls).toHaveLength(1);
  });

  it("resends a request that the feedback function called rejected", async () => {
    const api = await apis.start((_call, number) => (number === 0 ? { status: 429 } : {}));
    const feedback: BucketOptions["feedback"] = (result) =>
      (result as Response).status === 429 ? { coolMs: 200 } : undefined;

    const response = await openBucket({ ...QUICK, feedback }).fetch(api.url);

    expect(response.status).toBe(200);
    expect(api.calls[1]!.atMs - api.calls[0]!.atMs).toBeGreaterThan(195);
  });

  it("resends a request that was rejected without a retry time", async () => {
    const headers = { "retry-after": "0" };
    const api = await apis.start((_call, number) => (number === 0 ? { status: 429, headers } : {}));

    const response = await openBucket().fetch(api.url);

    expect(response.status).toBe(200);
    expect(api.calls).toHaveLength(2);
  });

  it("returns a response that is not a rejection, although it cools the bucket", async () => {
    const api = await apis.start(() => ({ body: "the last one for now" }));

    const response = await openBucket({ ...QUICK, feedback: () => ({ coolMs: 200 }) }).fetch(
      api.url,
    );

    expect(await response.text()).toBe("the last one for now");
    expect(api.calls).toHaveLength(1);
  });

  it.each<[string, () => RequestInit]>([
    ["a stream", () => ({ body: streamOf("once"), ...HALF })],
    ["an async iterable", () => ({ body: streamOf("once").values() as never, ...HALF })],
  ])("never sends %s twice", async (_what, init) => {
    const api = await apis.start(() => refusal);

    const response = await openBucket().fetch(api.url, { method: "POST", ...init() });

    expect(response.status).toBe(429);
    expect(api.calls.map(({ body }) => body)).toEqual(["once"]);
  });

  it.each<[string, () => NonNullable<RequestInit["body"]>, RegExp]>([
    ["a text", () => "a text", /^a text$/],
    ["form data", () => formOf({ file: new Blob(["in a file"]) }), /in a file/],
    ["a stream that has come to its end", () => streamOf("a stream"), /^a stream$/],
  ])("resends a whole Request with %s", async (_what, bodyOf, expected) => {
    const api = await apis.start((_call, number) => (number === 0 ? refusal : {}));
    const request = new Request(api.url, { method: "POST", body: bodyOf(), ...HALF });

    const response = await openBucket().fetch(request);

    expect(response.status).toBe(200);
    expect(api.calls.map(({ body }) => expected.test(body))).toEqual([true, true]);
    expect(api.calls[1]!.headers["content-type"]).toBe(api.calls[0]!.headers["content-type"]);
    expect(request.bodyUsed).toBe(true);
  });

  it("sends a Request once whose body is longer than 1 MiB", async () => {
    const api = await apis.start(() => refusal);
    const request = new Request(api.url, { method: "POST", body: "x".repeat(1_100_000) });

    const response = await openBucket().fetch(request);

    expect(response.status).toBe(429);
    expect(api.calls.map(({ body }) => body.length)).toEqual([1_100_000]);
  });

  it("sends a Request that has no body again", async () => {
    const api = await apis.start((_call, number) => (number === 0 ? refusal : {}));

    const response = await openBucket().fetch(new Request(api.url, { headers: { "x-a": "1" } }));

    expect(response.status).toBe(200);
    expect(api.calls.map(({ headers }) => headers["x-a"])).toEqual(["1", "1"]);
  });

  it.each<[string, (request: Request) => RequestInit]>([
    ["a Request", (request) => request],
    ["an object whose options are getters", optionsByGetters],
  ])("sends %s given as options", async (_what, optionsOf) => {
    const api = await apis.start(() => ({}));
    const headers = { "x-a": "1" };
    const request = new Request("http://a.example", { method: "PUT", headers, body: "hello" });

    await openBucket().fetch(api.url, optionsOf(request));

    expect(api.calls).toMatchObject([{ method: "PUT", body: "hello", headers: { "x-a": "1" } }]);
  });

  it("stops waiting by the signal of a Request that was given as options", async () => {
    const bucket = openBucket();
    await bucket.pause();
    const controller = new AbortController();
    const request = new Request("http://a.example", { signal: controller.signal });
    const rejection = rejectionOf(bucket.fetch("http://127.0.0.1:1", request));
    await waitUntil(() => bucket.waiting === 1, "it waits");

    controller.abort("enough");

    expect(await rejection).toBe("enough");
  });

  it.each<[string, () => NonNullable<RequestInit["body"]>, RegExp]>([
    ["a form", () => new URLSearchParams({ a: "1" }), /^a=1$/],
    ["bytes", () => new TextEncoder().encode("bytes"), /^bytes$/],
    ["a blob", () => new Blob(["blob"]), /^blob$/],
    ["form data", () => formOf({ file: new Blob(["in a file"]) }), /in a file/],
  ])("resends the whole of %s", async (_what, bodyOf, expected) => {
    const api = await apis.start((_call, number) => (number === 0 ? refusal : {}));

    const response = await openBucket().fetch(api.url, { method: "POST", body: bodyOf() });

    expect(response.status).toBe(200);
    expect(api.calls.map(({ body }) => expected.test(body))).toEqual([true, true]);
  });

  it.each([
    ["GET", 2],
    ["HEAD", 2],
    ["PUT", 2],
    ["DELETE", 2],
    ["POST", 1],
    ["PATCH", 1],
  ])("after a 503 to %s, sends %i requests", async (method, calls) => {
    const answer = { status: 503, headers: { "retry-after-ms": "50" } };
    const api = await apis.start((_call, number) => (number === 0 ? answer : {}));

    const response = await openBucket().fetch(api.url, { method });

    expect(api.calls).toHaveLength(calls);
    expect(response.status).toBe(calls === 1 ? 503 : 200);
  });

  it("stops waiting with the signal's reason, and sends nothing", async () => {
    const api = await apis.start(() => ({}));
    const bucket = openBucket();
    await bucket.pause();
    const reasons = [new Error("of init"), new Error("of a Request"), new Error("of with()")];
    const controllers = reasons.map(() => new AbortController());
    const [ofInit, ofRequest, ofWith] = controllers.map(({ signal }) => signal);
    const other = new AbortController();

    const rejections = [
      bucket.fetch(api.url, { signal: ofInit! }),
      bucket.fetch(new Request(api.url, { signal: ofRequest! })),
      bucket.fetch.with({ signal: ofWith! })(api.url, { signal: other.signal }),
    ].map(rejectionOf);
    await waitUntil(() => bucket.waiting === 3, "they wait");
    for (const [index, controller] of controllers.entries()) controller.abort(reasons[index]);

    expect(await Promise.all(rejections)).toEqual(reasons);
    expect(api.calls).toEqual([]);
    expect(bucket.waiting).toBe(0);
  });

  it.each(["of init", "of with()"])(
    "also stops waiting for another try by a signal %s",
    async (from) => {
      const api = await apis.start(() => ({ status: 429, headers: { "retry-after": "600" } }));
      const bucket = openBucket();
      const controller = new AbortController();
      const { signal } = controller;
      const answering =
        from === "of init"
          ? bucket.fetch(api.url, { signal })
          : bucket.fetch.with({ signal })(api.url);
      const rejection = rejectionOf(answering);
      await waitUntil(() => api.calls.length === 1 && bucket.waiting === 1, "it waits again");

      controller.abort("enough");

      expect(await rejection).toBe("enough");
      expect(api.calls).toHaveLength(1);
    },
  );

  it.each([503, 429])(
    "returns its %i to its caller when another try would wait too long",
    async (status) => {
      const headers = { "retry-after": "600" };
      const api = await apis.start(() => ({ status, headers, body: "not now" }));
      const { fetch } = openBucket({ ...QUICK, concurrency: 1 });

      const response = await fetch.with({ maxWaitMs: 1_000 })(api.url, { method: "PUT" });

      expect(response.status).toBe(status);
      expect(await response.text()).toBe("not now");
      expect(api.calls).toHaveLength(1);
    },
  );

  it("returns a rejection to its caller when it is closed before another try", async () => {
    const headers = { "retry-after": "600" };
    const api = await apis.start(() => ({ status: 429, headers, body: "not now" }));
    const sluice = sluices.open();
    const bucket = sluice.bucket("api", QUICK);
    const answering = bucket.fetch(api.url);
    await waitUntil(() => api.calls.length === 1 && bucket.waiting === 1, "it waits again");

    await sluice.close();

    const response = await answering;
    expect(response.status).toBe(429);
    expect(await response.text()).toBe("not now");
  });

  it("rejects as fetch does when no server responds", async () => {
    const api = await apis.start(() => ({ stream: (response) => void response.destroy() }));
    const bucket = openBucket({ ...QUICK, concurrency: 1 });
    const hungUpOn = async (): Promise<string> => (await bucket.fetch(api.url)).text();

    await expect(bucket.fetch("http://127.0.0.1:1")).rejects.toThrow(TypeError);
    await expect(hungUpOn()).rejects.toThrow(TypeError);

    await waitUntil(async () => (await bucket.peek()).limits[1]!.level === 0, "no lease is left");
  });

  it.each([
    ["without leases", QUICK],
    ["with leases", { ...QUICK, concurrency: 2 }],
  ])("returns the response unchanged, %s", async (_what, options) => {
    const api = await apis.start(({ path }) =>
      path === "/from"
        ? { status: 302, headers: { location: "/to?a=1" } }
        : {
            status: 203,
            headers: { "x-a": "1", "set-cookie": ["a=1", "b=2"], "content-type": "text/plain" },
            body: "moved",
          },
    );

    const response = await openBucket(options).fetch(`${api.url}/from`);
    const copy = response.clone();

    for (const each of [response, copy]) {
      expect(each).toBeInstanceOf(Response);
      expect([each.status, each.ok, each.statusText]).toEqual([
        203,
        true,
        "Non-Authoritative Information",
      ]);
      expect([each.url, each.redirected, each.type]).toEqual([`${api.url}/to?a=1`, true, "basic"]);
      expect(each.headers.get("x-a")).toBe("1");
      expect(each.headers.getSetCookie()).toEqual(["a=1", "b=2"]);
      expect(await each.text()).toBe("moved");
    }
  });
});

/** The options of a Request as some libraries keep them: on a prototype, where a spread finds none. */
function optionsByGetters({ method, headers, body }: Request): RequestInit {
  class Options {
    get method(): string {
      return method;
    }
    get headers(): Headers {
      return headers;
    }
    get body(): ReadableStream | null {
      return body;
    }
    get duplex(): "half" {
      return "half";
    }
  }
  return new Options();
}

function formOf(fields: Readonly<Record<string, Blob>>): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  return form;
}
