import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { describe, expect, it } from "vitest";
import type { Bucket } from "sluice";
import { fakeApis, type ApiAnswer } from "../../support/servers/fake-api.ts";
import { heapUsed } from "../../support/heap-used.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const apis = fakeApis();

const MORE_THAN_IS_READ_AHEAD = "x".repeat(1_000_000);

function openBucket(): Bucket {
  return sluices.open().bucket("api", { rate: "1000/s", concurrency: 1 });
}

describe("the fetch of a bucket that lets one call run at a time", () => {
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

  it("holds the lease until the response was read to its end", async () => {
    const bucket = openBucket();
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

  it("holds the lease while more than the read-ahead remains, and loses no byte", async () => {
    const bucket = openBucket();
    const api = await apis.start(() => ({ body: MORE_THAN_IS_READ_AHEAD }));

    const response = await bucket.fetch(api.url);
    const before = await running(bucket);
    const text = await response.text();

    expect(before).toBe(1);
    expect(text).toBe(MORE_THAN_IS_READ_AHEAD);
    await untilNoneRuns(bucket);
  });

  it("gives the lease back when the response is cancelled, and disconnects", async () => {
    const bucket = openBucket();
    const { reader, server } = await openStream(bucket);
    const hungUp = once(server, "close");

    await reader.cancel();

    await untilNoneRuns(bucket);
    await hungUp;
    expect(server.writableFinished).toBe(false);
  });

  it("gives the lease back when a long unread response is garbage-collected", async () => {
    const bucket = openBucket();
    const { signal } = new AbortController();
    const api = await apis.start(() => ({ body: MORE_THAN_IS_READ_AHEAD }));

    const statusOf = async (): Promise<number> => (await bucket.fetch(api.url, { signal })).status;
    expect(await statusOf()).toBe(200);

    await waitUntil(async () => {
      heapUsed();
      return (await running(bucket)) === 0;
    }, "the lease is given back");
  });

  it("keeps the lease of a long response while only its body is referenced", async () => {
    const bucket = openBucket();
    const api = await apis.start(() => ({ body: MORE_THAN_IS_READ_AHEAD }));
    const bodyOf = async () => (await bucket.fetch(api.url)).body!;

    const body = await bodyOf();
    for (let collected = 0; collected < 5; collected++) {
      heapUsed();
      expect(await running(bucket)).toBe(1);
    }
    const text = await new Response(body).text();

    expect(text).toBe(MORE_THAN_IS_READ_AHEAD);
    await untilNoneRuns(bucket);
  });

  it("gives the lease back when the response breaks off, and its reader gets the error", async () => {
    const bucket = openBucket();
    const { reader, server } = await openStream(bucket);
    await reader.read();
    const rejection = rejectionOf(reader.read());

    server.destroy();

    expect(await rejection).toBeInstanceOf(TypeError);
    await untilNoneRuns(bucket);
  });

  it("gives the lease back when a partly read long response breaks off", async () => {
    const bucket = openBucket();
    let sink: ReadableStreamDefaultController<Uint8Array> | undefined;
    let isReadAhead = false;
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        sink = controller;
        controller.enqueue(new Uint8Array(MORE_THAN_IS_READ_AHEAD.length));
      },
      pull() {
        isReadAhead = true;
      },
    });
    const fetch = bucket.fetch.with({ fetch: async () => new Response(body) });
    const response = await fetch("http://127.0.0.1:1");
    await waitUntil(() => isReadAhead, "no more is read");

    sink!.error(new Error("gone"));

    await untilNoneRuns(bucket);
    expect(response.status).toBe(200);
  });

  it("gives the lease back when the request is aborted during its response", async () => {
    const bucket = openBucket();
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
  ])("is not blocked by an unread response that %s", async (_what, answer) => {
    const bucket = openBucket();
    const api = await apis.start(() => answer);

    const first = await bucket.fetch(api.url, { method: "POST" });
    const second = await bucket.fetch(api.url, { method: "POST" });

    expect([first.status, second.status]).toEqual([answer.status ?? 200, answer.status ?? 200]);
    expect(await first.text()).toBe(answer.body ?? "");
  });

  it("gives the lease of a rejected try back before it waits for the next", async () => {
    const bucket = openBucket();
    const api = await apis.start((_call, number) =>
      number === 0
        ? { status: 429, headers: { "retry-after-ms": "200" }, body: MORE_THAN_IS_READ_AHEAD }
        : { body: "ok" },
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
    const buckets = Array.from({ length: 4 }, () => openBucket());

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
