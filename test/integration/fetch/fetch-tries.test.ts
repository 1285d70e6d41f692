import { Agent, fetch as undiciFetch } from "undici";
import { describe, expect, it } from "vitest";
import { InvalidOptionError, leakyBucket, type Bucket, type RetryContext } from "sluice";
import { fakeApis, type ApiAnswer } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const apis = fakeApis();

const SOON: ApiAnswer = { status: 429, headers: { "retry-after-ms": "20" }, body: "later" };

function openBucket(logger?: { warn(): void; error(): void }): Bucket {
  const options = logger === undefined ? {} : { logger };
  return sluices.open(options).bucket("api", { rate: "1000/s" });
}

describe("fetch.with({ tries })", () => {
  it.each([1, 2, 5])("sends a request that is always rejected %i times", async (tries) => {
    const api = await apis.start(() => SOON);

    const response = await openBucket().fetch.with({ tries })(api.url);

    expect(response.status).toBe(429);
    expect(api.calls).toHaveLength(tries);
  });

  it.each([0, -1, 1.5, Infinity, "3"])("refuses %j tries", (tries) => {
    const { fetch } = openBucket();

    expect(() => fetch.with({ tries: tries as number })).toThrow(InvalidOptionError);
  });
});

describe("fetch.with({ retry })", () => {
  it("never retries when it is false", async () => {
    const api = await apis.start(() => SOON);

    await openBucket().fetch.with({ retry: false })(api.url);

    expect(api.calls).toHaveLength(1);
  });

  it("decides on each response, by what the bucket read from it", async () => {
    const api = await apis.start((_call, number) => (number < 2 ? { status: 500 } : {}));
    const asked: RetryContext[] = [];
    const fetch = openBucket().fetch.with({
      retry(response, context) {
        asked.push(context);
        return response.status === 500;
      },
    });

    const response = await fetch(api.url, { method: "POST", body: "a" });

    expect(response.status).toBe(200);
    expect(asked.map(({ tries, method, answer }) => [tries, method, answer.status])).toEqual([
      [1, "POST", 500],
      [2, "POST", 500],
    ]);
  });

  it("leaves the decision to the bucket if it returns undefined, or fails", async () => {
    const api = await apis.start((_call, number) => (number < 2 ? SOON : {}));
    let asked = 0;
    const fetch = openBucket({ warn() {}, error() {} }).fetch.with({
      retry() {
        asked += 1;
        if (asked === 1) return undefined;
        throw new Error("boom");
      },
    });

    expect((await fetch(api.url)).status).toBe(200);
    expect(asked).toBe(2);
  });

  it("is not called if the request cannot be sent again", async () => {
    const api = await apis.start(() => SOON);
    const body = new Blob(["once"]).stream();
    const fetch = openBucket().fetch.with({ retry: () => true });

    await fetch(api.url, { method: "POST", body, duplex: "half" } as RequestInit);

    expect(api.calls.map((call) => call.body)).toEqual(["once"]);
  });
});

type FetchFunction = typeof globalThis.fetch;

describe("fetch.with({ fetch })", () => {
  const viaUndici = (agent: Agent): FetchFunction =>
    ((url: string, init: object) =>
      undiciFetch(url, { ...init, dispatcher: agent })) as unknown as FetchFunction;

  it.each<[string, (url: string) => readonly [string | Request, RequestInit?]]>([
    ["an address", (url) => [url, { method: "POST", body: "a" }]],
    [
      "a Request",
      (url) => [new Request(url, { method: "POST", body: "a", headers: { "x-a": "1" } })],
    ],
  ])("sends %s with undici's fetch and a dispatcher, and retries", async (_what, given) => {
    const api = await apis.start((_call, number) => (number === 0 ? SOON : { body: "ok" }));
    const agent = new Agent();
    const fetch = openBucket().fetch.with({ fetch: viaUndici(agent) });

    const response = await fetch(...given(api.url));

    expect(await response.text()).toBe("ok");
    expect(api.calls.map(({ method, body }) => [method, body])).toEqual([
      ["POST", "a"],
      ["POST", "a"],
    ]);
    await agent.close();
  });

  it("holds a lease until undici's response has been read", async () => {
    const api = await apis.start(() => ({ body: "x".repeat(1_000_000) }));
    const agent = new Agent();
    const bucket = sluices.open().bucket("api", { rate: "1000/s", concurrency: 1 });
    const running = async () => (await bucket.peek()).limits[1]!.level;

    const response = await bucket.fetch.with({ fetch: viaUndici(agent) })(api.url);
    const before = await running();
    await response.text();

    expect(before).toBe(1);
    await waitUntil(async () => (await running()) === 0, "the lease is given back");
    await agent.close();
  });

  it("refuses a value that is not a function", () => {
    expect(() => openBucket().fetch.with({ fetch: {} as never })).toThrow(InvalidOptionError);
  });
});

describe("the last of several rejected tries", () => {
  it("gives its tokens back too, and keeps its calls", async () => {
    const api = await apis.start(() => SOON);
    const bucket = sluices.open().bucket("api", {
      limits: [
        leakyBucket("1/h", { burst: 10 }),
        leakyBucket("1/h", { unit: "tokens", burst: 800 }),
      ],
    });

    await bucket.fetch.with({ cost: { tokens: 700 } })(api.url);

    await waitUntil(async () => (await bucket.peek()).limits[1]!.level === 0, "they are back");
    expect((await bucket.peek()).limits[0]!.level).toBe(3);
  });

  it("gives its tokens back when a client threw the rejection", async () => {
    const bucket = sluices.open().bucket("api", {
      limits: [
        leakyBucket("1/h", { burst: 10 }),
        leakyBucket("1/h", { unit: "tokens", burst: 800 }),
      ],
    });
    const refused = Object.assign(new Error("later"), { status: 429 });
    const call = bucket.throttled(() => Promise.reject(refused), { cost: { tokens: 700 } });

    await expect(call()).rejects.toBe(refused);

    await waitUntil(async () => (await bucket.peek()).limits[1]!.level === 0, "they are back");
  });
});
