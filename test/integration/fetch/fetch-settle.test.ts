import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { describe, expect, it } from "vitest";
import { leakyBucket, type Bucket, type FetchOptions } from "sluice";
import { deferred } from "../../support/async/deferred.ts";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const apis = fakeApis();

type Settle = NonNullable<FetchOptions["settle"]>;

interface Parts {
  readonly bucket: Bucket;
  readonly warnings: readonly string[];
}

/** One that counts tokens and gives none back by itself, with one call at a time or any number. */
function openModel(concurrency: number | undefined): Parts {
  const warnings: string[] = [];
  const logger = {
    warn: (_facts: object, text: string) => void warnings.push(text),
    error: (_facts: object, text: string) => void warnings.push(text),
  };
  const bucket = sluices.open({ logger }).bucket("model", {
    limits: [leakyBucket("1000/s"), leakyBucket("1/h", { unit: "tokens", burst: 1_000 })],
    ...(concurrency === undefined ? {} : { concurrency }),
  });
  return { bucket, warnings };
}

async function levelOf(bucket: Bucket, unit: string): Promise<number> {
  const { limits } = await bucket.peek();
  return limits.findLast((limit) => limit.unit === unit)!.level;
}

async function untilSettledTo(bucket: Bucket, tokens: number): Promise<void> {
  await waitUntil(async () => (await levelOf(bucket, "tokens")) === tokens, "it is settled");
}

/** An answer whose end the test, or its reader, decides. */
async function streaming(bucket: Bucket, settle: Settle) {
  let server: ServerResponse | undefined;
  const stream = (response: ServerResponse): void => {
    server = response;
    response.write("12345");
  };
  const api = await apis.start(() => ({ stream }));
  const response = await bucket.fetch.with({ cost: { tokens: 100 }, settle })(api.url);
  return { response, server: server! };
}

const kinds: [string, number | undefined][] = [
  ["any number at once", undefined],
  ["one call at a time", 1],
];

const reads: [string, Settle][] = [
  ["reads it", async (answer) => ({ tokens: (await answer.text()).length })],
  ["reads a clone of it", async (answer) => ({ tokens: (await answer.clone().text()).length })],
  [
    "reads it late",
    async (answer) => {
      await new Promise(setImmediate);
      return { tokens: (await answer.text()).length };
    },
  ],
];

describe.each(kinds)("settle in the fetch of a bucket with %s", (_kind, concurrency) => {
  it.each(reads)(
    "%s: the caller gets the whole response, and the actual cost is booked",
    async (_name, settle) => {
      const { bucket, warnings } = openModel(concurrency);
      const { response, server } = await streaming(bucket, settle);
      server.end("67");

      expect(await response.text()).toBe("1234567");
      await untilSettledTo(bucket, 7);
      expect(response.url).toContain("http://127.0.0.1");
      expect(warnings).toEqual([]);
    },
  );

  it("ends with the caller's reading: a cancel disconnects, and keeps the estimate", async () => {
    const { bucket, warnings } = openModel(concurrency);
    const { response, server } = await streaming(bucket, reads[0]![1]);

    await Promise.all([once(server, "close"), response.body!.cancel()]);

    const next = await streaming(bucket, reads[0]![1]);
    next.server.end();
    expect(await next.response.text()).toBe("12345");
    await untilSettledTo(bucket, 105);
    expect(warnings).toEqual([]);
  });

  it("hides nothing from its caller if it reads nothing", async () => {
    const { bucket } = openModel(concurrency);
    const { response, server } = await streaming(bucket, () => ({ tokens: 3 }));
    await untilSettledTo(bucket, 3);
    server.end("67");

    expect(await response.text()).toBe("1234567");
  });

  it("has separate bytes, whatever the caller does to those that it reads", async () => {
    const { bucket } = openModel(concurrency);
    const changed = deferred();
    const { response, server } = await streaming(bucket, async (answer) => {
      await changed.promise;
      return { tokens: Number(await answer.text()) - 12_000 };
    });
    server.end();

    for await (const bytes of response.body!) (bytes as Uint8Array).fill(48);
    changed.resolve();

    await untilSettledTo(bucket, 345);
    expect(response.bodyUsed).toBe(true);
  });

  it("keeps the estimate when the response breaks off, which its caller notices", async () => {
    const { bucket, warnings } = openModel(concurrency);
    const { response, server } = await streaming(bucket, reads[0]![1]);

    server.destroy();

    await expect(response.text()).rejects.toThrow("terminated");
    await bucket.draw();
    expect(await levelOf(bucket, "tokens")).toBe(100);
    expect(warnings).toEqual([]);
  });

  it("logs its own failure, and keeps the estimate", async () => {
    const { bucket, warnings } = openModel(concurrency);
    const { response, server } = await streaming(bucket, async (answer) => ({
      tokens: ((await answer.json()) as { missing: { tokens: number } }).missing.tokens,
    }));
    server.end();

    expect(await response.text()).toBe("12345");
    await waitUntil(() => warnings.length > 0, "it is said");
    expect(warnings[0]).toContain("settle() failed; the estimate of bucket");
    expect(await levelOf(bucket, "tokens")).toBe(100);
  });

  it("reads a response without a body, and a rejected one", async () => {
    const { bucket } = openModel(concurrency);
    const api = await apis.start(() => ({ status: 204, headers: { "x-tokens": "9" } }));
    const ask = bucket.fetch.with({
      cost: { tokens: 100 },
      settle: (answer) => ({ tokens: Number(answer.headers.get("x-tokens")) }),
    });

    expect((await ask(api.url)).status).toBe(204);
    await untilSettledTo(bucket, 9);

    const refusing = await apis.start(() => ({ status: 400, headers: { "x-tokens": "1" } }));
    expect((await ask(refusing.url)).status).toBe(400);
    await untilSettledTo(bucket, 10);
  });
});

describe("the fetch of a bucket with one call at a time", () => {
  it("gives the lease back of a response whose body feedback has read", async () => {
    const { bucket } = openModel(1);
    const api = await apis.start(() => ({ body: "12345" }));
    const ask = bucket.fetch.with({
      feedback: (answer) => {
        void (answer as Response).text();
        return undefined;
      },
    });

    const response = await ask(api.url);

    expect(response.bodyUsed).toBe(true);
    await bucket.draw();
  });
});

describe("a rejected try that is followed by another", () => {
  /** Room for the tokens of one try, and for many calls. */
  function openNarrow(): Bucket {
    return sluices.open().bucket("narrow", {
      limits: [
        leakyBucket("1/h", { burst: 10 }),
        leakyBucket("1/h", { unit: "tokens", burst: 1_000 }),
      ],
    });
  }

  async function callTwice(bucket: Bucket, status: number, maxWaitMs: number): Promise<Response> {
    const headers = { "retry-after-ms": "1" };
    const api = await apis.start((_call, number) => (number === 0 ? { status, headers } : {}));
    const fetch = bucket.fetch.with({ cost: { tokens: 700 }, maxWaitMs });
    return fetch(api.url);
  }

  it("gives its tokens to the next try, and has used its call", async () => {
    const bucket = openNarrow();

    const response = await callTwice(bucket, 429, 30_000);

    expect(response.status).toBe(200);
    expect([await levelOf(bucket, "calls"), await levelOf(bucket, "tokens")]).toEqual([2, 700]);
  });

  it("keeps its tokens if work may have begun before the rejection", async () => {
    const bucket = openNarrow();

    const response = await callTwice(bucket, 503, 1_000);

    expect(response.status).toBe(503);
    expect(await levelOf(bucket, "tokens")).toBe(700);
  });
});
