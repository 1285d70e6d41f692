import { describe, expect, it } from "vitest";
import { concurrency, tokenBucket } from "sluice";
import { worstWindow } from "sluice/testing";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { services } from "../../support/server/service.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const servers = services();

const SLOW = "1/h";

describe("POST /v1/buckets/:bucket/draw", () => {
  it("answers at its slot, in the order of those who ask", async () => {
    const sluice = sluices.open();
    sluice.bucket("api", { rate: "20/s" });
    const service = await servers.start(sluice);

    const answers = [];
    for (let call = 0; call < 4; call++) answers.push(await service.post("/v1/buckets/api/draw"));

    const at = answers.map(({ json }) => json.slot.atMs as number);
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    for (const [index, atMs] of at.slice(1).entries()) {
      expect(atMs - at[index]!).toBeGreaterThanOrEqual(49.9);
    }
    expect(answers[0]!.json.slot).toMatchObject({ bucket: "api", hasLease: false });
    expect(answers[0]!.json.slot).not.toHaveProperty("id");
  });

  it("refuses at once what would wait longer than maxWaitMs, and says when to come again", async () => {
    const sluice = sluices.open();
    sluice.bucket("api", { rate: SLOW });
    const service = await servers.start(sluice);
    await service.post("/v1/buckets/api/draw", {});

    const { status, headers, json } = await service.post("/v1/buckets/api/draw", {
      maxWaitMs: 60_000,
    });

    expect(status).toBe(429);
    expect(headers["content-type"]).toContain("application/problem+json");
    expect(Number(headers["retry-after"])).toBeGreaterThan(3_000);
    expect(json).toMatchObject({ status: 429, code: "ERR_WAIT_TOO_LONG" });
  });

  it.each([
    ["an unknown option", { maxWait: 5 }, "maxWait"],
    ["a wait that is no time", { maxWaitMs: 0 }, "maxWaitMs"],
    ["a text in place of a number", { maxWaitMs: "5" }, "maxWaitMs"],
    ["a priority that there is not", { priority: "urgent" }, "priority"],
    ["a cost that can never be", { cost: -1 }, "cost"],
    ["a cost in a unit that the bucket does not count", { cost: { tokens: 5 } }, "cost"],
    ["a key with a control character", { key: "a\u0000b" }, "key"],
    ["a path that is too long", { key: ["a", "b", "c", "d"] }, "key"],
    ["a hold that is too long", { holdMs: 1e12 }, "holdMs"],
  ])("refuses %s by its name, and draws nothing", async (_what, body, option) => {
    const sluice = sluices.open();
    sluice.bucket("api", { rate: SLOW });
    const service = await servers.start(sluice);

    const refused = await service.post("/v1/buckets/api/draw", body);
    const next = await service.post("/v1/buckets/api/try");

    expect(refused.status).toBe(400);
    expect(refused.json).toMatchObject({ code: "ERR_INVALID_OPTION" });
    expect(refused.json.option).toContain(option);
    expect(next.status).toBe(200);
  });

  it.each([
    [{ maxWait: 5 }, "there is no such option; did you mean maxWaitMs?"],
    [{ maxWaitMs: "5" }, "give a whole number"],
    [{ priority: "urgent" }, 'give one of "critical", "high", "normal", "low"'],
  ])("says of %j what to write instead", async (body, remedy) => {
    const sluice = sluices.open();
    sluice.bucket("api", { rate: SLOW });
    const service = await servers.start(sluice);

    const { json } = await service.post("/v1/buckets/api/draw", body);
    const form = await fetch(`${service.url}/v1/buckets/api/draw`, { method: "POST", body: "a=1" });

    expect(json).toMatchObject({ remedy });
    expect(form.status).toBe(415);
    expect(await form.json()).toMatchObject({
      detail: expect.stringContaining("content-type: application/json") as string,
    });
  });

  it("explains how to declare a bucket that no process has declared", async () => {
    const service = await servers.start(sluices.open());

    const { status, json } = await service.post("/v1/buckets/nobodys/draw");

    expect(status).toBe(404);
    expect(json.detail).toContain('sluice.bucket("nobodys"');
  });

  it("draws from a bucket that only another process has declared", async () => {
    const declaring = sluices.open();
    await declaring.bucket("theirs", { rate: SLOW }).draw();
    const sluice = sluices.open();
    await waitUntil(async () => (await sluice.find("theirs")) !== undefined, "it is told of");
    const service = await servers.start(sluice);

    const { status } = await service.post("/v1/buckets/theirs/try");

    expect(status).toBe(429);
  });

  it("gives the place of a client that hangs up to those behind it", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("api", { rate: SLOW });
    const service = await servers.start(sluice);
    await service.post("/v1/buckets/api/draw");
    const waiting = [1, 2, 3].map(() => service.ask("/v1/buckets/api/draw"));
    const ends = waiting.map(({ answer }) => answer.catch((error: Error) => error.message));
    await waitUntil(() => bucket.waiting === 3, "all wait");

    for (const asking of waiting) asking.hangUp();
    await Promise.all(ends);

    await waitUntil(() => bucket.waiting === 0, "their places are free");
    expect((await service.post("/v1/buckets/api/try")).status).toBe(429);
  });

  it("holds the slot of a client that died no longer than holdMs", async () => {
    const sluice = sluices.open();
    sluice.bucket("jobs", { limits: [concurrency(1)] });
    const service = await servers.start(sluice);

    const first = await service.post("/v1/buckets/jobs/draw", { holdMs: 300 });
    const second = await service.post("/v1/buckets/jobs/draw", { holdMs: 60_000 });

    expect(first.json.slot).toMatchObject({ hasLease: true, heldForMs: 300 });
    expect(second.status).toBe(200);
    const third = await service.post("/v1/buckets/jobs/try");
    expect(third.status).toBe(429);
  });

  it("answers waiting callers when the server closes", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("api", { rate: SLOW });
    const service = await servers.start(sluice);
    await service.post("/v1/buckets/api/draw");
    const waiting = [1, 2, 3].map(() => service.post("/v1/buckets/api/draw"));
    await waitUntil(() => bucket.waiting === 3, "all wait");

    const closing = service.server.close();
    const answers = await Promise.all(waiting);
    await closing;

    expect(answers.map(({ status }) => status)).toEqual([503, 503, 503]);
    expect(answers[0]!.json).toMatchObject({ code: "ERR_CLOSED" });
    expect(answers[0]!.headers["retry-after"]).toBe("1");
    expect(bucket.waiting).toBe(0);
  });

  it("is exact over two servers on one Redis", async () => {
    const [one, other] = await Promise.all(
      [sluices.open(), sluices.open()].map((sluice) => {
        sluice.bucket("api", { rate: "100/s" });
        return servers.start(sluice);
      }),
    );

    const answers = await Promise.all(
      Array.from({ length: 60 }, (_, at) =>
        (at % 2 === 0 ? one! : other!).post("/v1/buckets/api/draw"),
      ),
    );

    const atMs = answers.map(({ json }) => json.slot.atMs as number).toSorted((a, b) => a - b);
    const gaps = atMs.slice(1).map((at, index) => at - atMs[index]!);
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(9.99);
    expect(worstWindow(atMs, 100)).toBeLessThanOrEqual(11);
  });
});

describe("POST /v1/buckets/:bucket/try", () => {
  it("returns the same in body and headers, without noise of the clock", async () => {
    const sluice = sluices.open();
    sluice.bucket("api", { rate: "100/s" });
    const service = await servers.start(sluice);

    const { headers, json } = await service.post("/v1/buckets/api/try");

    expect(String(json.remaining)).toBe(headers["x-ratelimit-remaining"]);
    expect(json.limits[0]).toMatchObject({ capacity: 100, windowMs: 1_000, remaining: 99 });
    expect(String(json.slot.waitedMs)).toMatch(/^\d+(\.\d{1,3})?$/);
  });

  it("answers at once, with the headers of the limit", async () => {
    const sluice = sluices.open();
    sluice.bucket("api", { perKey: { rate: "2/min", burst: 2 } });
    const service = await servers.start(sluice);
    const ask = () => service.post("/v1/buckets/api/try", { key: "acme" });

    const [first, , third] = [await ask(), await ask(), await ask()];

    expect(first.status).toBe(200);
    expect(first.json).toMatchObject({ allowed: true, remaining: 1 });
    expect(first.headers["ratelimit"]).toContain("r=1");
    expect(third.status).toBe(429);
    expect(third.headers["content-type"]).toContain("application/problem+json");
    expect(third.headers["ratelimit-policy"]).toContain("q=2");
    expect(third.headers["ratelimit"]).toContain("r=0");
    expect(Number(third.headers["retry-after"])).toBeGreaterThan(0);
    expect(third.json).toMatchObject({ status: 429, title: "Too Many Requests", remaining: 0 });
  });

  it("counts exactly over two servers that are asked at once", async () => {
    const two = await Promise.all(
      [sluices.open(), sluices.open()].map((sluice) => {
        sluice.bucket("api", { perKey: { rate: "50/h", burst: 50 } });
        return servers.start(sluice);
      }),
    );

    const answers = await Promise.all(
      Array.from({ length: 150 }, (_, at) =>
        two[at % 2]!.post("/v1/buckets/api/try", { key: "acme" }),
      ),
    );

    expect(answers.filter(({ status }) => status === 200)).toHaveLength(50);
    expect(answers.filter(({ status }) => status === 429)).toHaveLength(100);
  });
});

describe("tries that come in one turn of the event loop", () => {
  it("share a script, so that none goes ahead and has the others wait for its answer", async () => {
    const sluice = sluices.open();
    sluice.bucket("api", { limits: [tokenBucket({ capacity: 100_000, refill: SLOW })] });
    const service = await servers.start(sluice);
    // A slot of a try is when its script ran, to the microsecond.
    const askAtOnce = async (): Promise<number> => {
      const asked = [1, 2, 3].map(async () => {
        const answer = await fetch(`${service.url}/v1/buckets/api/try`, { method: "POST" });
        const { slot } = (await answer.json()) as { readonly slot: { readonly atMs: number } };
        return slot.atMs;
      });
      return new Set(await Promise.all(asked)).size;
    };

    // The first ones wait for what the server has yet to learn, and are asked for together in any case.
    await askAtOnce();
    let scripts = 0;
    await waitUntil(async () => (scripts = await askAtOnce()) === 1, "three came in one turn");

    expect(scripts).toBe(1);
  });
});
