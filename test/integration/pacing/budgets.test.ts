import { describe, expect, it } from "vitest";
import { budget, BudgetSpentError, leakyBucket, tokenBucket, type BudgetEvent } from "sluice";
import { priceOf } from "sluice/llm";
import { services } from "../../support/server/service.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const servers = services();
const usd = (given: object = {}) =>
  budget({ unit: "usd", amount: 10, per: "month", timeZone: "Europe/Berlin", ...given });

describe("a bucket with a budget", () => {
  it("rejects a draw that does not fit, at once and with the facts", async () => {
    const bucket = sluices.open().bucket("b", { rate: "100/s", limits: [usd()] });
    await bucket.draw({ cost: { usd: 9.8 } });

    const refusal: unknown = await bucket.draw({ cost: { usd: 0.25 } }).catch((error) => error);

    expect(refusal).toBeInstanceOf(BudgetSpentError);
    expect(refusal).toMatchObject({
      code: "ERR_BUDGET_SPENT",
      bucket: "b",
      key: undefined,
      limitedBy: "10/month usd",
      scope: "bucket",
      level: undefined,
      unit: "usd",
      cost: 0.25,
      amount: 10,
      spent: 9.8,
      refusalStatus: 429,
    });
    const { resetsAt, retryAfterMs, message } = refusal as BudgetSpentError;
    expect(resetsAt.getTime()).toBeGreaterThan(Date.now());
    expect(retryAfterMs).toBeGreaterThan(0);
    expect(message).toContain("bucket.grant()");
    expect((await bucket.draw({ cost: { usd: 0.2 } })).bucket).toBe("b");
  });

  it("shows a budget that configure() has added, before any draw", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("b", { rate: "100/s" });
    await bucket.configure({ rate: "100/s", limits: [usd()] });

    expect(await bucket.budgets()).toMatchObject([{ unit: "usd", amount: 10, spent: 0 }]);
  });

  it("rejects those calls of one tick that no longer fit into the budget of their key", async () => {
    const bucket = sluices.open().bucket("b", { perKey: { limits: [usd({ amount: 1 })] } });
    const draw = (cost: number) => bucket.draw({ key: "acme", cost: { usd: cost } });

    const drawn = await Promise.allSettled([draw(0.4), draw(0.4), draw(0.4)]);

    expect(drawn.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "rejected"]);
    expect(drawn[2]).toMatchObject({ reason: { code: "ERR_BUDGET_SPENT", spent: 0.8 } });
    expect((await draw(0.2)).bucket).toBe("b");
  });

  it.each([undefined, "acme"])(
    "passes a call whose first slot came too late, of key %s",
    async (key) => {
      const limits = [usd({ amount: 1 })];
      const options = key === undefined ? { limits } : { perKey: { limits } };
      const bucket = sluices.open().bucket("b", { ...options, rate: "100/s" });
      await bucket.draw({ key, cost: { usd: 0.5 } });

      const drawn = bucket.draw({ key, cost: { usd: 0.5 } });
      await new Promise(setImmediate);
      const untilMs = performance.now() + 400;
      while (performance.now() < untilMs);

      expect((await drawn).bucket).toBe("b");
      await expect.poll(async () => (await bucket.budgets({ key })).at(-1)!.spent).toBe(1);
    },
  );

  it("is not taken for a response of a provider, by a call or job that it stops", async () => {
    const sluice = sluices.open();
    const spent = sluice.bucket("spent", { rate: "100/s", limits: [usd({ amount: 1 })] });
    const outer = sluice.bucket("outer", { rate: "100/s" });
    await spent.draw({ cost: { usd: 1 } });
    const nested = outer.throttled(() => spent.draw({ cost: { usd: 1 } }));

    await expect(nested()).rejects.toBeInstanceOf(BudgetSpentError);

    expect(await outer.peek()).toMatchObject({ coolingForMs: 0 });
    await expect(outer.draw({ maxWaitMs: 1_000 })).resolves.toBeDefined();
  });

  it("counts calls without a settlement, also if an earlier call of the key reserved", async () => {
    const calls = budget({ unit: "calls", amount: 5, per: "day" });
    const bucket = sluices.open().bucket("b", { rate: "100/s", limits: [calls] });
    const other = sluices.open().bucket("c", { rate: "100/s", perKey: { limits: [calls] } });

    await bucket.draw({ settles: true });
    await bucket.draw();
    await other.draw({ key: "acme", settles: true });
    await other.draw({ key: "acme" });

    for (const [state] of [await bucket.budgets(), await other.budgets({ key: "acme" })]) {
      expect(state).toMatchObject({ spent: 2, reserved: 1 });
    }
  });

  it("is only reserved by a fetch that settles, and settled by its response", async () => {
    const bucket = sluices.open().bucket("b", { rate: "100/s", limits: [usd()] });
    const reserved: number[] = [];
    const ownFetch = async (): Promise<Response> => {
      reserved.push((await bucket.budgets())[0]!.reserved);
      return Response.json({ usd: 0.5 });
    };
    const settle = async (response: Response) => (await response.json()) as { usd: number };

    const ask = bucket.fetch.with({ cost: () => ({ usd: 2 }), settle, fetch: ownFetch });
    const response = await ask("http://localhost/");
    await response.text();

    expect(reserved).toEqual([2]);
    await expect.poll(async () => (await bucket.budgets())[0]!.spent).toBe(0.5);
    expect((await bucket.budgets())[0]!.reserved).toBe(0);
  });

  it("names the level that is spent: user, team or company", async () => {
    const bucket = sluices.open().bucket("b", {
      limits: [usd({ amount: 100 })],
      perKey: [{ limits: [usd({ amount: 5 })] }, { limits: [usd({ amount: 2 })] }],
    });
    const spend = (key: string[], cost: number) =>
      bucket.draw({ key, cost: { usd: cost } }).then(
        () => "passed",
        (error: BudgetSpentError) => [error.scope, error.level, error.amount],
      );

    expect(await spend(["team", "ann"], 2)).toBe("passed");
    expect(await spend(["team", "ann"], 0.01)).toEqual(["key", 1, 2]);
    expect(await spend(["team", "bob"], 2)).toBe("passed");
    expect(await spend(["team", "cy"], 1.5)).toEqual(["key", 0, 5]);
    expect(await spend(["other", "cy"], 1.5)).toBe("passed");
    const { limits } = await bucket.peek({ key: ["team", "ann"] });
    expect(limits.map(({ name, capacity, remaining }) => [name, capacity, remaining])).toEqual([
      ["100/month usd", 100, 94.5],
      ["5/month usd (level 0)", 5, 1],
      ["2/month usd (level 1)", 2, 0],
    ]);
  });

  it("rejects throttled calls and requests of fetch", async () => {
    const bucket = sluices.open().bucket("b", { limits: [usd({ amount: 1 })] });
    const options = { cost: { usd: 0.6 } };
    const paid = bucket.throttled(async () => "done", options);
    const send = bucket.fetch.with({ ...options, fetch: async () => new Response("done") });

    expect(await paid()).toBe("done");
    await expect(paid()).rejects.toThrow(BudgetSpentError);
    await expect(send("http://127.0.0.1:9/")).rejects.toThrow(BudgetSpentError);
    await expect(bucket.run(() => "done", options)).rejects.toThrow(BudgetSpentError);
    const { allowed, limitedBy } = await bucket.tryDraw(options);
    expect([allowed, limitedBy]).toEqual([false, "1/month usd"]);
  });

  it("reserves an estimate, and counts what the call settles", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("b", { limits: [usd({ amount: 1 })] });
    const paid = bucket.throttled(async (cost: number) => ({ cost }), {
      cost: { usd: 0.6 },
      settle: ({ cost }) => ({ usd: cost }),
    });

    await paid(0.1);
    await paid(0.2);
    await paid(0.3);

    const reader = sluices.open().bucket("b", { limits: [usd({ amount: 1 })] });
    await expect.poll(async () => (await reader.peek()).limits[0]!.remaining).toBe(0.4);
  });

  it("keeps the estimate of a call that failed, or whose settle finds nothing", async () => {
    const bucket = sluices.open().bucket("b", {
      limits: [usd({ amount: 1, reserveMs: 1_000 })],
    });
    const options = { cost: { usd: 0.25 }, settle: () => undefined };

    await bucket.run(() => "done", options);
    await bucket.run(() => Promise.reject(new Error("no")), options).catch(() => undefined);

    await expect
      .poll(async () => (await bucket.budgets())[0])
      .toMatchObject({
        spent: 0.5,
        reserved: 0,
      });
  });

  it.each([
    ["100/s", 60],
    ["1000/s", 300],
  ])("counts each call of %s once, although pauses make slots invalid", async (rate, count) => {
    const open = () => sluices.open().bucket("b", { rate, limits: [usd()] });
    const [here, there] = [open(), open()];
    const calls = Array.from({ length: count }, () => here.draw({ cost: { usd: 0.01 } }));

    for (let round = 0; round < 8; round++) {
      await there.pause();
      await there.resume();
    }
    await Promise.all(calls);

    await expect.poll(async () => (await there.budgets())[0]!.spent).toBe(count / 100);
  });

  it("emits each warning in one process only", async () => {
    const open = () =>
      sluices.open().bucket("b", { limits: [usd({ amount: 1, warnAt: [0.5, 0.8] })] });
    const buckets = [open(), open(), open()];
    const heard: BudgetEvent[] = [];
    for (const bucket of buckets) bucket.on("budget", (event) => heard.push(event));

    const spending = buckets.flatMap((bucket) =>
      [1, 2, 3].map(() => bucket.draw({ cost: { usd: 0.1 } })),
    );
    await Promise.all(spending);

    // Different processes may reach the two parts, and each hears of its own as its reply arrives.
    const inOrder = heard.toSorted((one, other) => one.part - other.part);
    expect(inOrder.map(({ part }) => part)).toEqual([0.5, 0.8]);
    expect(inOrder[0]).toMatchObject({ budget: "1/month usd", unit: "usd", amount: 1 });
  });

  it("lets free calls pass through every door, even if the budget is spent", async () => {
    const sluice = sluices.open();
    const price = priceOf({ free: { input: 0, output: 0 }, "*": { input: 1, output: 1 } });
    const priceOfCall = (model: string) => price({ model, usage: { input: 1_000_000 } });
    // With a burst, a try has room right after other calls.
    const bucket = sluice.bucket("b", { rate: "100/s", burst: 10, limits: [usd({ amount: 1 })] });
    const ask = bucket.throttled(async (model: string) => model, {
      cost: priceOfCall,
      settle: priceOfCall,
    });
    const free = { cost: { usd: 0 } };
    const queue = sluice.queue<string>("free", { bucket });
    const ended: string[] = [];
    sluice.worker(queue, async ({ data }) => void ended.push(data));
    const service = await servers.start(sluice);
    await ask("paid");

    expect(await ask("free")).toBe("free");
    await expect(ask("paid")).rejects.toThrow(BudgetSpentError);
    expect((await bucket.tryDraw(free)).allowed).toBe(true);
    await queue.enqueue("job", free);
    const { status, json } = await service.post("/v1/buckets/b/draw", { ...free, settles: true });
    const settled = await service.post(`/v1/slots/${json.slot.id}/settle`, free);

    expect([status, settled.status]).toEqual([200, 200]);
    await expect.poll(() => ended).toEqual(["job"]);
    expect(await bucket.budgets()).toMatchObject([{ spent: 1, reserved: 0 }]);
  });

  it.each([
    ["a bucket", { limits: [usd(), tokenBucket({ capacity: 9, refill: "9/s", unit: "tokens" })] }],
    [
      "a key",
      {
        perKey: { limits: [usd(), leakyBucket("9/s", { burst: 9, unit: "tokens" })] },
        rate: "9/s",
      },
    ],
  ])("keeps 0 from a rate of %s", async (_what, options) => {
    const bucket = sluices.open().bucket("b", options);
    const draw = (cost: Record<string, number>) => bucket.draw({ key: "a", cost });

    await expect(draw({ usd: 0, tokens: 0 })).rejects.toMatchObject({ option: "cost.tokens" });
    await expect(draw({ usd: 0, calls: 0 })).rejects.toMatchObject({ option: "cost.calls" });
    await expect(draw({ usd: 0, tokens: 1 })).resolves.toBeDefined();
  });

  it("keeps 0 from a rate of a pool's member", async () => {
    const limits = [usd(), leakyBucket("9/s", { burst: 9, unit: "tokens" })];
    const pool = sluices.open().pool("p", { members: { east: { limits } } });

    await expect(pool.draw({ cost: { tokens: 0 } })).rejects.toMatchObject({
      option: "cost.tokens",
    });
    await expect(pool.draw({ cost: { usd: 0 } })).resolves.toMatchObject({ member: "east" });
  });

  it.each([
    [{ unit: "usd", amount: -1, per: "month" }, "amount"],
    [{ unit: "usd", amount: 3e9, per: "month" }, "amount"],
    [{ unit: "usd", amount: 1, per: "decade" }, "per"],
    [{ unit: "usd", amount: 1, per: "day", timeZone: "Mars/Base" }, "timeZone"],
    [{ unit: "usd", amount: 1, per: "day", warnAt: [0.8, 0.5] }, "warnAt"],
    [{ unit: "usd", amount: 1, per: "day", weekStart: "sunday" }, "weekStart"],
    [{ unit: "usd", amount: 1, per: { days: 30 }, carryOver: true }, "carryOver"],
    [{ unit: "usd", amount: 1, per: "day", onSpend: "wait" }, "onSpend"],
  ])("refuses %j by name", (given, option) => {
    expect(() => budget(given as never)).toThrow(expect.objectContaining({ option }));
  });

  it("refuses two budgets of one unit and period, and fractions of whole units", async () => {
    const sluice = sluices.open();
    expect(() => sluice.bucket("two", { limits: [usd(), usd({ amount: 20 })] })).toThrow(/limits/);
    const tokens = budget({ unit: "tokens", amount: 5_000, per: "day" });
    const both = sluice.bucket("both", {
      rate: "100/s",
      limits: [usd({ per: "day" }), usd(), tokens],
    });

    await expect(both.draw({ cost: 1.5 })).rejects.toThrow(/whole number/);
    await expect(both.draw({ cost: { calls: 1.5 } })).rejects.toThrow(/cost.calls/);
    await expect(both.draw({ cost: { usd: 0.5, tokens: 0.5 } })).resolves.toBeDefined();
  });
});
