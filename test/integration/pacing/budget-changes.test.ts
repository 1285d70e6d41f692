import { describe, expect, inject, it } from "vitest";
import { budget, BudgetSpentError, InvalidOptionError, type Bucket, type Sluice } from "sluice";
import { waitUntil } from "../../support/async/wait-until.ts";
import { children } from "../../support/children/child.ts";
import { runCli } from "../../support/children/run-cli.ts";
import { ACT, ask, openServers } from "../../support/server/open-server.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const servers = openServers();
const processes = children();

const usd = (given: object = {}) => budget({ unit: "usd", amount: 10, per: "year", ...given });
const llm = (sluice: Sluice, given: object = {}): Bucket =>
  sluice.bucket("llm", { limits: [usd(given)], perKey: { limits: [usd({ amount: 2 })] } });
const spend = (bucket: Bucket, cost: number, key?: string): Promise<string> =>
  bucket.draw({ cost: { usd: cost }, ...(key !== undefined && { key }) }).then(
    () => "passed",
    (error: Error) => error.name,
  );

describe("a grant", () => {
  it("raises a budget for all replicas until the period ends, and undo takes it back", async () => {
    const [here, there] = [llm(sluices.open()), llm(sluices.open())];
    expect(await spend(here, 10)).toBe("passed");
    expect(await spend(there, 1)).toBe("BudgetSpentError");

    const [after] = await here.grant({ usd: 5 }, { reason: "demo day", by: "ann" });

    expect(after).toMatchObject({ amount: 15, granted: 5, spent: 10, remaining: 5 });
    expect(await spend(there, 1)).toBe("passed");
    const undone = await there.undo({ by: "bob" });
    expect(undone).toMatchObject({ action: "grant", subject: "budget", by: "ann" });
    expect(undone!.after.granted).toEqual({ "usd:year": 5 });
    expect((await here.budgets())[0]).toMatchObject({ amount: 10, granted: 0, spent: 11 });
    expect(await spend(here, 1)).toBe("BudgetSpentError");
    const changes = await sluices.open().changes({ bucket: "llm" });
    expect(changes.map(({ action, reason }) => [action, reason])).toEqual([
      ["undo", undefined],
      ["grant", "demo day"],
    ]);
  });

  it("raises the budget of one key", async () => {
    const bucket = llm(sluices.open());
    expect(await spend(bucket, 2, "acme")).toBe("passed");
    await bucket.grant({ usd: 1 }, { key: "acme", reason: "they asked" });

    expect(await spend(bucket, 1, "acme")).toBe("passed");
    expect(await spend(bucket, 2.5, "other")).toBe("BudgetSpentError");
  });

  it("is part of the size that peek shows, for the bucket and for a key", async () => {
    const bucket = llm(sluices.open());
    await spend(bucket, 2, "acme");
    await bucket.grant({ usd: 5 }, { reason: "demo day" });
    await bucket.grant({ usd: 1 }, { key: "acme", reason: "they asked" });

    const { limits } = await bucket.peek({ key: "acme" });

    expect(limits).toMatchObject([
      { name: "10/year usd", capacity: 15, level: 2, remaining: 13 },
      { name: "2/year usd", capacity: 3, level: 2, remaining: 1 },
    ]);
  });

  it("lets a job go that waits for a spent budget", async () => {
    const sluice = sluices.open();
    const bucket = llm(sluice);
    await spend(bucket, 10);
    const queue = sluice.queue<string>("calls", { bucket });
    const ran: string[] = [];
    sluice.worker(queue, async ({ data }) => void ran.push(data));
    const job = await queue.enqueue("later", { cost: { usd: 1 } });
    await waitUntil(async () => (await job.explain())?.limit !== undefined, "the job waits");

    const { waitsFor, limit } = (await job.explain())!;
    expect([waitsFor, limit]).toEqual(["limit", "10/year usd"]);
    expect(await spend(bucket, 1)).toBe("BudgetSpentError");
    expect(ran).toEqual([]);
    await bucket.grant({ usd: 1 }, { reason: "for the job" });

    await waitUntil(() => ran.length === 1, "the job runs");
  });

  it("lets a call go that waits, as its budget wants it to", async () => {
    const limits = [usd({ amount: 1, onSpent: "wait" })];
    const bucket = sluices.open().bucket("patient", { limits });
    await spend(bucket, 1);
    const waiting = spend(bucket, 0.5);
    await waitUntil(() => bucket.waiting === 1, "the call waits");
    await expect(bucket.draw({ cost: { usd: 1.5 } })).rejects.toThrow("ever pass");

    await bucket.grant({ usd: 1 }, { reason: "go on" });

    expect(await waiting).toBe("passed");
  });

  it.each([
    [{ usd: -1 }, { reason: "x" }, "usd"],
    [{}, { reason: "x" }, "amounts"],
    [{ eur: 1 }, { reason: "x" }, "eur"],
    [{ usd: 1 }, {}, "reason"],
    [{ usd: 1 }, { reason: "x", per: "week" }, "usd"],
  ])("of %j with %j is refused by name", async (amounts, options, option) => {
    const granting = llm(sluices.open()).grant(amounts as never, options as never);

    await expect(granting).rejects.toThrow(InvalidOptionError);
    await expect(granting).rejects.toMatchObject({ option });
  });
});

it("moves balances to another server, by export and import", async () => {
  const from = llm(sluices.open());
  await spend(from, 1.5, "acme");
  await spend(from, 0.5, "sub:key%");
  await from.grant({ usd: 3 }, { reason: "more" });
  // The forecast depends on the time of the test.
  const exportOf = async (bucket: Bucket) =>
    JSON.parse(JSON.stringify(await bucket.budgets({ all: true })), (name, value) =>
      name === "spentAt" ? undefined : value,
    );
  const exported = await exportOf(from);
  expect(exported).toHaveLength(3);

  const to = llm(sluices.open({ prefix: `${sluices.prefix()}b` }));
  const result = await to.restore(
    [...exported, { ...exported[0], startsAt: "2020-01-01T00:00:00.000Z" }],
    { reason: "moved" },
  );

  expect(result).toMatchObject({
    restored: 3,
    skipped: [{ startsAt: "2020-01-01T00:00:00.000Z" }],
  });
  expect(await exportOf(to)).toEqual(exported);
  expect(await spend(to, 1, "acme")).toBe("BudgetSpentError");
});

it("settles a call under the budget after the rest of the policy has changed", async () => {
  const bucket = llm(sluices.open());
  const slot = await bucket.draw({ cost: { usd: 1 }, settles: true });
  await bucket.configure({ limits: [usd({ amount: 50 })], rate: "10/s" });
  await bucket.draw({ cost: { usd: 1 } });

  await slot.settle({ usd: 3 });

  expect((await bucket.budgets())[0]).toMatchObject({ amount: 50, spent: 4, reserved: 0 });
});

it("forecasts when a budget is spent, in the status and in the reasons", async () => {
  const bucket = llm(sluices.open());
  await spend(bucket, 9.99);
  const { url } = await servers.open(sluices.open());

  const { budgets } = await bucket.status();
  const why = await ask(`${url}/api/v1/buckets/llm/why`, { token: ACT });

  const { spentAt, resetsAt } = budgets![0]!;
  expect(spentAt!.getTime()).toBeGreaterThan(Date.now() - 60_000);
  expect(spentAt!.getTime()).toBeLessThanOrEqual(resetsAt.getTime());
  const reasons = (why.json as { reasons: string[] }).reasons.join("\n");
  expect(reasons).toMatch(/the budget 10\/year usd is spent on .* UTC: 9.99 of 10 usd spent/);
});

it("explains a key by the budget of each of its levels, over HTTP and in a shell", async () => {
  const bucket = sluices.open().bucket("llm", {
    limits: [usd()],
    perKey: [{ limits: [usd({ amount: 5 })] }, { limits: [usd({ amount: 2 })] }],
  });
  await bucket.draw({ key: ["search", "ann"], cost: { usd: 2 } });
  const { url } = await servers.open(sluices.open());
  const key = "key=search&key=ann";

  const { json } = await ask(`${url}/api/v1/buckets/llm/why?${key}`, { token: ACT });
  const env = { REDIS_URL: inject("redisUrl") };
  const prefix = ["--prefix", sluices.prefix()];
  const ofKey = await runCli([...prefix, "why", "llm", "--key", "search", "ann"], env);
  const ofBucket = await runCli([...prefix, "bucket", "llm"], env);

  expect(json).toMatchObject({
    budgets: [
      { name: "10/year usd", spent: 2, amount: 10 },
      { name: "5/year usd", key: "search", spent: 2, amount: 5, reserved: 0 },
      { name: "2/year usd", key: ["search", "ann"], spent: 2, amount: 2, remaining: 0 },
    ],
  });
  const { reasons } = json as { reasons: string[] };
  expect(reasons.join("\n")).toMatch(
    /^The budget 2\/year usd of \["search","ann"\] is spent until .* UTC: 2 of 2 usd spent\.$/m,
  );
  expect(ofKey.out).toMatch(/^BUDGET +KEY +SPENT +OF +RESERVED +GRANTED +RESETS +SPENT ON$/m);
  expect(ofBucket.out).toMatch(/^10\/year usd +- +2 +10 +0 +0 +.* UTC/m);
  expect(ofKey.out).toMatch(/^2\/year usd +\["search","ann"\] +2 +2 +0 +0 +.* UTC +spent$/m);
});

it.each([
  [402, { httpStatus: 402 }],
  [429, {}],
])("refuses draws and tries over HTTP with %i and the time of the reset", async (status, given) => {
  const bucket = llm(sluices.open(), given);
  await spend(bucket, 9.9);
  const { url } = await servers.open(sluices.open());
  const body = { cost: { usd: 0.5 } };

  const draw = await ask(`${url}/v1/buckets/llm/draw`, { token: ACT, method: "POST", body });
  const tried = await ask(`${url}/v1/buckets/llm/try`, { token: ACT, method: "POST", body });

  expect(tried.status).toBe(status);
  expect(Number(tried.headers["retry-after"])).toBeGreaterThan(60);
  expect(tried.json).toMatchObject({ code: "ERR_NO_ROOM", status, limitedBy: "10/year usd" });
  expect(draw.status).toBe(status);
  expect(Number(draw.headers["retry-after"])).toBeGreaterThan(60);
  expect(draw.json).toMatchObject({
    code: "ERR_BUDGET_SPENT",
    status,
    unit: "usd",
    amount: 10,
    spent: 9.9,
    limitedBy: "10/year usd",
  });
});

describe("real processes", () => {
  const start = (mode: string, cost: number) =>
    processes.start("budget-spender.ts", [
      inject("redisUrl"),
      sluices.prefix(),
      mode,
      String(cost),
    ]);
  const limits = [budget({ unit: "usd", amount: 5, per: "year", reserveMs: 2_000 })];

  it("never spend more than the amount together, and leave less than one call", async () => {
    const costs = [0.07, 0.03, 0.11, 0.05];
    const spenders = costs.map((cost) => start("all", cost));
    await waitUntil(() => spenders.every(({ messages }) => messages.length > 0), "all are ready");
    for (const spender of spenders) spender.send("go");
    await waitUntil(() => spenders.every(({ messages }) => messages.length > 1), "all is spent");

    const calls = spenders.map(({ messages }) => messages[1] as number);
    const millionths = calls.map((count, index) => count * Math.round(costs[index]! * 1e6));
    const spent = millionths.reduce((sum, each) => sum + each, 0);
    expect(spent).toBeLessThanOrEqual(5_000_000);
    expect(spent).toBeGreaterThan(5_000_000 - 30_000);
    const [balance] = await sluices.open().bucket("llm", { limits }).budgets();
    expect(Math.round(balance!.spent * 1e6)).toBe(spent);
  });

  it("that are killed between draw and settlement give their reservation back", async () => {
    const bucket = sluices.open().bucket("llm", { limits });
    const spender = start("hang", 5);
    await waitUntil(() => spender.messages.length > 0, "it is ready");
    spender.send("go");
    await waitUntil(() => spender.messages.includes("drawn"), "it has drawn");
    expect((await bucket.budgets())[0]).toMatchObject({ spent: 5, reserved: 5 });

    spender.signal("SIGKILL");
    await spender.ended;

    await waitUntil(() => spend(bucket, 5).then((end) => end === "passed"), "it is given back");
    await expect(bucket.draw({ cost: { usd: 0.01 } })).rejects.toThrow(BudgetSpentError);
  });
});
