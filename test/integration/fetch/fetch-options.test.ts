import { describe, expect, it } from "vitest";
import {
  WaitTooLongError,
  InvalidOptionError,
  leakyBucket,
  type Bucket,
  type FetchOptions,
} from "sluice";
import { fakeApis, type ApiAnswer } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const apis = fakeApis();

const BURST = 1_000;

/** One that counts tokens, of all and of each key, and gives none back by itself. */
function openModel({ concurrency }: { concurrency?: number } = {}): Bucket {
  const tokens = leakyBucket("1/h", { unit: "tokens", burst: BURST });
  return sluices.open().bucket("model", {
    limits: [leakyBucket("1000/s"), tokens],
    ...(concurrency === undefined ? {} : { concurrency }),
    perKey: { limits: [tokens] },
  });
}

async function tokensTaken(bucket: Bucket, key: string): Promise<number[]> {
  const { limits } = await bucket.peek({ key });
  return limits.filter(({ unit }) => unit === "tokens").map(({ level }) => level);
}

async function rejecting(): Promise<never> {
  throw new Error("nobody hears of it");
}

function rejectingBoth() {
  return { tokens: rejecting(), calls: rejecting() };
}

function promptOf(init: RequestInit | undefined): string {
  return typeof init?.body === "string" ? init.body : "";
}

describe("fetch.with()", () => {
  it("takes key and cost from each request", async () => {
    const api = await apis.start(() => ({ body: "ok" }));
    const bucket = openModel();
    const ask = bucket.fetch.with({
      key: (input) => new URL(input instanceof Request ? input.url : input).pathname.slice(1),
      cost: (_input, init) => ({ tokens: promptOf(init).length }),
    });

    await ask(`${api.url}/acme`, { method: "POST", body: "12345" });
    await ask(new Request(`${api.url}/globex`), { method: "POST", body: "123" });

    expect(await tokensTaken(bucket, "acme")).toEqual([8, 5]);
    expect(await tokensTaken(bucket, "globex")).toEqual([8, 3]);
  });

  it("draws again for the same key and cost with each try", async () => {
    const refusal: ApiAnswer = { status: 429, headers: { "retry-after-ms": "100" }, body: "later" };
    const api = await apis.start((_call, number) => (number === 0 ? refusal : { body: "7" }));
    const bucket = openModel();
    const asked: unknown[] = [];
    const ask = bucket.fetch.with({
      key: "acme",
      cost: (...given) => {
        asked.push(given);
        return { tokens: 100 };
      },
      settle: async (response) => ({ tokens: Number(await response.text()) }),
    });

    expect(await (await ask(api.url)).text()).toBe("7");

    // The try that was refused came to no tokens.
    await waitUntil(async () => (await tokensTaken(bucket, "acme"))[0] === 7, "it is settled");
    expect(await tokensTaken(bucket, "acme")).toEqual([7, 7]);
    expect(asked).toEqual([[api.url, undefined]]);
  });

  it("reads responses with its feedback option, for the key of the request", async () => {
    const api = await apis.start(() => ({ status: 420 }));
    const bucket = openModel();
    const ask = bucket.fetch.with({
      key: () => "acme",
      feedback: (response) =>
        (response as Response).status === 420 ? { coolMs: 60_000, scope: "key" } : undefined,
    });

    expect((await ask(api.url)).status).toBe(420);
    await waitUntil(async () => (await bucket.peek({ key: "acme" })).coolingForMs > 0, "it cools");

    const rejection = await rejectionOf(bucket.draw({ key: "acme", maxWaitMs: 1_000 }));
    expect(rejection).toBeInstanceOf(WaitTooLongError);
    await bucket.draw({ key: "globex" });
  });

  it("reads what fetch itself throws", async () => {
    const bucket = openModel();
    const ask = bucket.fetch.with({
      feedback: (failure) => (failure instanceof TypeError ? { coolMs: 60_000 } : undefined),
    });

    await expect(ask("http://127.0.0.1:1")).rejects.toThrow(TypeError);

    await waitUntil(async () => (await bucket.peek()).coolingForMs > 0, "it cools");
  });

  it("obeys its signal when the cost depends on the request", async () => {
    const bucket = openModel();
    const signal = AbortSignal.abort("enough");

    const rejection = await rejectionOf(
      bucket.fetch.with({ signal, cost: () => 1 })("http://127.0.0.1:1"),
    );

    expect(rejection).toBe("enough");
  });

  it("keeps the options of an earlier with()", async () => {
    const api = await apis.start(() => ({}));
    const bucket = openModel();

    await bucket.fetch.with({ cost: () => ({ tokens: 9 }) }).with({ key: "acme", cost: undefined })(
      api.url,
    );

    expect(await tokensTaken(bucket, "acme")).toEqual([9, 9]);
  });

  it.each([
    ["a key", { key: () => "a\nb" }, "key"],
    ["a cost", { cost: () => 0 }, "cost"],
    ["a cost of a unit", { cost: () => ({ tokens: NaN }) }, "cost.tokens"],
    ["a promise of a key", { key: rejecting } as unknown as FetchOptions, "key"],
    ["promises of both", { key: rejecting, cost: rejecting } as unknown as FetchOptions, "cost"],
    ["a promise of a cost", { cost: rejecting } as unknown as FetchOptions, "cost"],
    [
      "promises in a cost",
      { cost: () => rejectingBoth() } as unknown as FetchOptions,
      "cost.tokens",
    ],
  ])("sends nothing for %s that can never work", async (_name, options, named) => {
    const api = await apis.start(() => ({}));
    const rejection = await rejectionOf(openModel().fetch.with(options)(api.url));

    expect(rejection).toBeInstanceOf(InvalidOptionError);
    expect(rejection).toMatchObject({
      option: named,
      message: expect.stringContaining("fetch.with(): option") as string,
    });
    expect(api.calls).toEqual([]);
  });

  it("sends nothing for a unit that no limit counts", async () => {
    const api = await apis.start(() => ({}));
    const ask = openModel().fetch.with({ cost: () => ({ tokns: 5 }) });

    expect(await rejectionOf(ask(api.url))).toMatchObject({ option: "cost.tokns" });
    expect(api.calls).toEqual([]);
  });

  it("sends nothing when a function of the request throws", async () => {
    const api = await apis.start(() => ({}));
    const reason = new Error("no such tenant");
    const ask = openModel().fetch.with({
      key: () => {
        throw reason;
      },
    });

    expect(await rejectionOf(ask(api.url))).toBe(reason);
    expect(api.calls).toEqual([]);
  });

  it("refuses what it cannot do", () => {
    const options = { concurrency: 5 } as FetchOptions;

    expect(() => openModel().fetch.with(options)).toThrow(/fetch\.with\(\).*concurrency/);
  });

  it("refuses an invalid signal, and sends nothing", async () => {
    const signal = "soon" as unknown as AbortSignal;

    await expect(openModel().fetch("http://127.0.0.1:1", { signal })).rejects.toThrow(
      'fetch(): option "signal" is "soon"; give an AbortSignal',
    );
  });
});
