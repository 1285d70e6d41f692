import { getEventListeners } from "node:events";
import { describe, expect, it } from "vitest";
import type { Bucket, BucketOptions } from "sluice";
import { fakeApis, type ApiAnswer } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const apis = fakeApis();

const ONE_AT_A_TIME: BucketOptions = { rate: "1000/s", concurrency: 1 };
const REFUSAL: ApiAnswer = { status: 429, headers: { "retry-after-ms": "1" }, body: "later" };
const MORE_THAN_IS_READ_AHEAD = "x".repeat(1_000_000);
const BREAKS_OFF: ApiAnswer = {
  stream: (answer) => void answer.write("x", () => answer.destroy()),
};

function openBucket(options: BucketOptions): Bucket {
  return sluices.open().bucket("api", options);
}

/** What hangs on a signal: its listeners, and the signals that Node itself remembers to depend on it. */
function leftOn(signal: AbortSignal): number {
  const symbols = Object.getOwnPropertySymbols(signal);
  const name = symbols.find(({ description }) => description === "kDependantSignals");
  const dependants = name && (signal as unknown as Record<symbol, Set<unknown> | undefined>)[name];
  return getEventListeners(signal, "abort").length + (dependants?.size ?? 0);
}

/** The end of an answer may be seen a moment after its reader has it. */
const PATIENCE = { timeout: 30_000 };

describe("a signal that outlives the requests that it may end", () => {
  const ends: [string, (answer: Response) => Promise<unknown> | undefined, ApiAnswer][] = [
    ["was read", (answer) => answer.text(), { body: MORE_THAN_IS_READ_AHEAD }],
    ["was cancelled", (answer) => answer.body?.cancel(), { body: MORE_THAN_IS_READ_AHEAD }],
    ["broke off", (answer) => rejectionOf(answer.text()), BREAKS_OFF],
    ["has no body", async () => {}, { status: 204 }],
    ["is short and was not read", async () => {}, { body: "ok" }],
    ["was refused thrice", (answer) => answer.text(), REFUSAL],
  ];
  it.each(ends)(
    "is not kept alive by a leased request whose response %s",
    async (_what, end, answer) => {
      const { signal } = new AbortController();
      const api = await apis.start(() => answer);

      const response = await openBucket(ONE_AT_A_TIME).fetch(api.url, { signal });
      await end(response);

      await expect.poll(() => leftOn(signal), PATIENCE).toBe(0);
    },
  );

  it("would be kept alive by Node's own combination of several signals", () => {
    const { signal } = new AbortController();

    const joined = AbortSignal.any([signal, new AbortController().signal]);

    expect([joined.aborted, leftOn(signal)]).toEqual([false, 1]);
  });

  it("is not kept alive by a request that reached no server", async () => {
    const { signal } = new AbortController();

    await rejectionOf(openBucket(ONE_AT_A_TIME).fetch("http://127.0.0.1:1", { signal }));

    await expect.poll(() => leftOn(signal), PATIENCE).toBe(0);
  });

  it("is not kept alive by a request that returned its last response for lack of a slot", async () => {
    const { signal } = new AbortController();
    const api = await apis.start(() => ({ ...REFUSAL, headers: { "retry-after": "60" } }));
    const { fetch } = openBucket(ONE_AT_A_TIME);

    const response = await fetch.with({ maxWaitMs: 1_000 })(api.url, { signal });
    await response.text();

    await expect.poll(() => leftOn(signal), PATIENCE).toBe(0);
  });

  it("is not kept alive by a request that another signal may also end", async () => {
    const { signal } = new AbortController();
    const other = new AbortController();
    const api = await apis.start(() => ({ body: "ok" }));
    const fetch = openBucket({ rate: "1000/s" }).fetch.with({ signal });

    const response = await fetch(api.url, { signal: other.signal });
    await response.text();

    await expect.poll(() => leftOn(signal), PATIENCE).toBe(0);
  });
});

describe("a request that two signals may end", () => {
  it.each([0, 1])("stops waiting when signal %i of them is aborted", async (number) => {
    const controllers = [new AbortController(), new AbortController()];
    const bucket = openBucket({ rate: "1/h" });
    await bucket.draw();
    const fetch = bucket.fetch.with({ signal: controllers[0]!.signal });
    const rejection = rejectionOf(fetch("http://127.0.0.1:1", { signal: controllers[1]!.signal }));
    await waitUntil(() => bucket.waiting === 1, "the request waits");

    controllers[number]!.abort(new Error("enough"));

    expect(await rejection).toMatchObject({ message: "enough" });
  });

  it("does not begin when one is already aborted", async () => {
    const { signal } = new AbortController();
    const bucket = openBucket({ rate: "1/h" });
    const fetch = bucket.fetch.with({ signal });

    const ended = AbortSignal.abort(new Error("enough"));

    expect(await rejectionOf(fetch("http://127.0.0.1:1", { signal: ended }))).toMatchObject({
      message: "enough",
    });
    expect(leftOn(signal)).toBe(0);
  });
});
