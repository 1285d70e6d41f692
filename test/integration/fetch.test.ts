import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { Redis } from "ioredis";
import { describe, expect, inject, it } from "vitest";
import type { Bucket, BucketOptions } from "sluice";
import { fakeApis, type ApiAnswer } from "../support/fake-api.ts";
import { realSluices } from "../support/real-sluice.ts";
import { rejectionOf } from "../support/rejection.ts";
import { waitUntil } from "../support/wait-until.ts";

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

  it("draws as it is told by with(), also for a key", async () => {
    const api = await apis.start(() => ({}));
    const bucket = openBucket({ rate: "1/h", burst: 10, perKey: { rate: "1/h", burst: 20 } });

    await bucket.fetch.with({ key: "a" }).with({ cost: 3 })(api.url);

    const { limits } = await bucket.peek({ key: "a" });
    expect(limits.map(({ remaining }) => remaining)).toEqual([7, 17]);
  });

  it("sends a refused request again, not before the cooldown is over", async () => {
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

  it("keeps to the cooldown also when Redis has lost its scripts", async () => {
    const bucket = openBucket();
    const api = await apis.start((_call, number) => (number === 0 ? refusal : {}));
    await bucket.draw();
    await withoutScripts(() => bucket.draw());

    await bucket.fetch(api.url);

    expect(api.calls[1]!.atMs - api.calls[0]!.atMs).toBeGreaterThan(195);
  });

  it("gives the third refusal to its caller, body and all", async () => {
    const api = await apis.start(() => ({ ...refusal, headers: { "retry-after-ms": "20" } }));

    const response = await openBucket().fetch(api.url);

    expect(response.status).toBe(429);
    expect(await response.text()).toBe("later");
    expect(api.calls).toHaveLength(3);
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

  it("never sends the body of a Request twice", async () => {
    const api = await apis.start(() => refusal);
    const request = new Request(api.url, { method: "POST", body: "once" });

    const response = await openBucket().fetch(request);

    expect(response.status).toBe(429);
    expect(api.calls.map(({ body }) => body)).toEqual(["once"]);
    expect(request.bodyUsed).toBe(true);
  });

  it("sends a Request that has no body again", async () => {
    const api = await apis.start((_call, number) => (number === 0 ? refusal : {}));

    const response = await openBucket().fetch(new Request(api.url, { headers: { "x-a": "1" } }));

    expect(response.status).toBe(200);
    expect(api.calls.map(({ headers }) => headers["x-a"])).toEqual(["1", "1"]);
  });

  it.each<[string, () => NonNullable<RequestInit["body"]>, RegExp]>([
    ["a form", () => new URLSearchParams({ a: "1" }), /^a=1$/],
    ["bytes", () => new TextEncoder().encode("bytes"), /^bytes$/],
    ["a blob", () => new Blob(["blob"]), /^blob$/],
    ["form data", () => formOf({ file: new Blob(["in a file"]) }), /in a file/],
  ])("sends %s again, whole", async (_what, bodyOf, expected) => {
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
  ])("after a 503 to %s there are %i calls", async (method, calls) => {
    const answer = { status: 503, headers: { "retry-after-ms": "50" } };
    const api = await apis.start((_call, number) => (number === 0 ? answer : {}));

    const response = await openBucket().fetch(api.url, { method });

    expect(api.calls).toHaveLength(calls);
    expect(response.status).toBe(calls === 1 ? 503 : 200);
  });

  it("ends its wait with the signal's reason, and sends nothing", async () => {
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

  it("ends its wait for another try, too", async () => {
    const api = await apis.start(() => ({ status: 429, headers: { "retry-after": "600" } }));
    const bucket = openBucket();
    const controller = new AbortController();
    const rejection = rejectionOf(bucket.fetch(api.url, { signal: controller.signal }));
    await waitUntil(() => api.calls.length === 1 && bucket.waiting === 1, "it waits again");

    controller.abort("enough");

    expect(await rejection).toBe("enough");
    expect(api.calls).toHaveLength(1);
  });

  it("rejects as fetch does when nobody answers", async () => {
    const api = await apis.start(() => ({ stream: (response) => void response.destroy() }));
    const bucket = openBucket({ rate: "1000/s", concurrency: 1 });

    await expect(bucket.fetch("http://127.0.0.1:1")).rejects.toThrow(TypeError);
    const response = await bucket.fetch(api.url).catch((error: unknown) => error);

    if (response instanceof Response) await expect(response.text()).rejects.toThrow(TypeError);
    else expect(response).toBeInstanceOf(TypeError);
    await waitUntil(async () => (await bucket.peek()).limits[1]!.level === 0, "no lease is left");
  });

  it.each([
    ["without leases", QUICK],
    ["with leases", { ...QUICK, concurrency: 2 }],
  ])("keeps the answer as it was, %s", async (_what, options) => {
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

describe("the fetch of a bucket that lets one call run at a time", () => {
  const ONE_AT_A_TIME: BucketOptions = { ...QUICK, concurrency: 1 };
  const MORE_THAN_IS_READ_AHEAD = "x".repeat(1_000_000);

  async function running(bucket: Bucket): Promise<number> {
    return (await bucket.peek()).limits.at(-1)!.level;
  }

  async function untilNoneRuns(bucket: Bucket): Promise<void> {
    await waitUntil(async () => (await running(bucket)) === 0, "the lease is given back");
  }

  /** An answer whose end the test decides. */
  async function openStream(bucket: Bucket, first = "first") {
    let server: ServerResponse | undefined;
    const stream = (response: ServerResponse): void => {
      server = response;
      response.write(first);
    };
    const api = await apis.start(() => ({ stream }));
    const response = await bucket.fetch(api.url);
    return { response, reader: response.body!.getReader(), server: server! };
  }

  it("holds the lease until the answer has been read to its end", async () => {
    const bucket = openBucket(ONE_AT_A_TIME);
    const { reader, server } = await openStream(bucket);
    await reader.read();
    const whileItStreams = [await running(bucket), (await bucket.tryDraw()).allowed];
    server.end("last");

    const last = await reader.read();
    const end = await reader.read();

    expect(whileItStreams).toEqual([1, false]);
    expect(new TextDecoder().decode(last.value)).toBe("last");
    expect(end.done).toBe(true);
    await untilNoneRuns(bucket);
  });

  it("holds the lease while there is more than it reads ahead, and loses no byte", async () => {
    const bucket = openBucket(ONE_AT_A_TIME);
    const api = await apis.start(() => ({ body: MORE_THAN_IS_READ_AHEAD }));

    const response = await bucket.fetch(api.url);
    const before = await running(bucket);
    const text = await response.text();

    expect(before).toBe(1);
    expect(text).toBe(MORE_THAN_IS_READ_AHEAD);
    await untilNoneRuns(bucket);
  });

  it("gives the lease back when the answer is cancelled, and hangs up", async () => {
    const bucket = openBucket(ONE_AT_A_TIME);
    const { reader, server } = await openStream(bucket);
    const hungUp = once(server, "close");

    await reader.cancel();

    await untilNoneRuns(bucket);
    await hungUp;
  });

  it("gives the lease back when the answer breaks off, and tells its reader", async () => {
    const bucket = openBucket(ONE_AT_A_TIME);
    const { reader, server } = await openStream(bucket);
    await reader.read();
    const rejection = rejectionOf(reader.read());

    server.destroy();

    expect(await rejection).toBeInstanceOf(TypeError);
    await untilNoneRuns(bucket);
  });

  it("gives the lease back when the request is aborted in the middle of its answer", async () => {
    const bucket = openBucket(ONE_AT_A_TIME);
    const controller = new AbortController();
    const api = await apis.start(() => ({ stream: (response) => void response.write("first") }));
    const response = await bucket.fetch(api.url, { signal: controller.signal });
    const rejection = rejectionOf(response.text());

    controller.abort(new Error("enough"));

    expect(await rejection).toMatchObject({ message: "enough" });
    await untilNoneRuns(bucket);
  });

  it.each<[string, ApiAnswer]>([
    ["is empty", { body: "" }],
    ["is short", { body: "ok" }],
    ["has no body", { status: 204 }],
    ["has a status that no Response can be made with", { status: 999, body: "denied" }],
  ])("is not held up by an answer that nobody reads and that %s", async (_what, answer) => {
    const bucket = openBucket(ONE_AT_A_TIME);
    const api = await apis.start(() => answer);

    const first = await bucket.fetch(api.url, { method: "POST" });
    const second = await bucket.fetch(api.url, { method: "POST" });

    expect([first.status, second.status]).toEqual([answer.status ?? 200, answer.status ?? 200]);
    expect(await first.text()).toBe(answer.body ?? "");
  });

  it("gives the lease of a refused try back before it waits for the next", async () => {
    const bucket = openBucket(ONE_AT_A_TIME);
    const api = await apis.start((_call, number) =>
      number === 0 ? { ...refusal, body: MORE_THAN_IS_READ_AHEAD } : { body: "ok" },
    );

    const response = await bucket.fetch(api.url);

    expect(await response.text()).toBe("ok");
    expect(api.calls).toHaveLength(2);
  });

  it("makes calls of many processes wait for each other", async () => {
    let atOnce = 0;
    let most = 0;
    const api = await apis.start(() => ({
      stream(response) {
        most = Math.max(most, ++atOnce);
        setImmediate(() => {
          atOnce -= 1;
          response.end("ok");
        });
      },
    }));
    const buckets = Array.from({ length: 4 }, () => openBucket(ONE_AT_A_TIME));

    const texts = await Promise.all(
      Array.from({ length: 40 }, async (_, index) => {
        const response = await buckets[index % 4]!.fetch(api.url);
        return response.text();
      }),
    );

    expect(texts).toEqual(texts.map(() => "ok"));
    expect(most).toBe(1);
  });
});

function formOf(fields: Readonly<Record<string, Blob>>): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  return form;
}
