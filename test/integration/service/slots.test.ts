import { createHmac } from "node:crypto";
import { describe, expect, it } from "vitest";
import { budget, concurrency, createSluice, tokenBucket } from "sluice";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { services } from "../../support/server/service.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const servers = services();

const tokens = (): { limits: ReturnType<typeof tokenBucket>[] } => ({
  limits: [tokenBucket({ capacity: 1_000, refill: "1/h", unit: "tokens" })],
});

describe("POST /v1/slots/:id", () => {
  it("settle books the actual cost of the call, and only the first time", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("gpt", tokens());
    const service = await servers.start(sluice);
    const drawn = await service.post("/v1/buckets/gpt/draw", { cost: { tokens: 400 } });
    const path = `/v1/slots/${drawn.json.slot.id}`;

    const unknown = await service.post(`${path}/settle`, { cost: { toknes: 10 } });
    const settled = await service.post(`${path}/settle`, { cost: { tokens: 150 } });
    await service.post(`${path}/settle`, { cost: { tokens: 900 } });

    expect(unknown).toMatchObject({ status: 400, json: { code: "ERR_INVALID_OPTION" } });
    expect(settled.status).toBe(200);
    expect((await bucket.peek()).limits[0]!.remaining).toBe(850);
  });

  it("settle replaces what a budget had reserved, at another server too", async () => {
    const limits = [budget({ unit: "usd", amount: 10, per: "year", reserveMs: 1_000 })];
    const [first, second] = [sluices.open(), sluices.open()];
    const bucket = first.bucket("gpt", { limits });
    second.bucket("gpt", { limits });
    const [giver, other] = [await servers.start(first), await servers.start(second)];
    const body = { cost: { usd: 4 }, settles: true };
    const [own, others] = [
      await giver.post("/v1/buckets/gpt/draw", body),
      await giver.post("/v1/buckets/gpt/draw", body),
    ];
    expect(await bucket.budgets()).toMatchObject([{ spent: 8, reserved: 8 }]);

    await giver.post(`/v1/slots/${own.json.slot.id}/settle`, { cost: { usd: 0.5 } });
    await other.post(`/v1/slots/${others.json.slot.id}/settle`, { cost: { usd: 0.25 } });

    expect(await bucket.budgets()).toMatchObject([{ spent: 0.75, reserved: 0 }]);
  });

  it("release ends the lease, with a cost if given, and only once", async () => {
    const sluice = sluices.open();
    const { limits } = tokens();
    const bucket = sluice.bucket("gpt", { limits: [...limits, concurrency(1)] });
    const service = await servers.start(sluice);
    const drawn = await service.post("/v1/buckets/gpt/draw", { cost: { tokens: 400 } });
    const waiting = service.post("/v1/buckets/gpt/draw", { cost: { tokens: 1 } });
    await waitUntil(() => bucket.waiting === 1, "the second waits");
    const path = `/v1/slots/${drawn.json.slot.id}/release`;

    const released = await service.post(path, { cost: { tokens: 100 } });
    const again = await service.post(path);

    expect(drawn.json.slot.hasLease).toBe(true);
    expect(released.status).toBe(200);
    expect(again.status).toBe(404);
    expect((await waiting).status).toBe(200);
    expect((await bucket.peek()).limits[0]!.remaining).toBe(899);
  });

  it("release says how a call ended to a limit that adapts to latency, at another server too", async () => {
    const policy = { limits: [concurrency("auto", { initial: 20 })] };
    const [first, second] = [sluices.open(), sluices.open()];
    const bucket = first.bucket("search", policy);
    second.bucket("search", policy);
    const [giver, other] = [await servers.start(first), await servers.start(second)];
    const reasonAfter = async (body: object): Promise<string | undefined> => {
      // One at a time, because the limit may fall to 1.
      for (const server of [giver, other]) {
        const { json } = await giver.post("/v1/buckets/search/draw");
        await server.post(`/v1/slots/${json.slot.id}/release`, body);
      }
      return (await bucket.peek()).limits[0]!.adaptive?.reason;
    };
    const refused = await giver.post("/v1/slots/some-id/release", { outcome: "lost" });

    let before: string | undefined;
    await waitUntil(async () => {
      before = await reasonAfter({});
      return before !== undefined && before !== "calibrating";
    }, "the limit is calibrated");
    await waitUntil(
      async () => (await reasonAfter({ outcome: "dropped" })) === "drops",
      "the limit falls",
    );

    expect(before).not.toBe("drops");
    expect(refused).toMatchObject({ status: 400, json: { option: "outcome" } });
  });

  it("rejects an unknown id", async () => {
    const service = await servers.start(sluices.open());

    const { status, json } = await service.post("/v1/slots/AAAAAAAAAAAAAAAAAAAAAAAA/release");

    expect(status).toBe(404);
    expect(json.detail).toContain("gave a slot of this id");
  });

  it("is held until a client that died would have renewed it, at whichever server", async () => {
    const policy = { limits: [concurrency(1)] };
    const [first, second] = [sluices.open(), sluices.open()];
    for (const sluice of [first, second]) sluice.bucket("jobs", policy);
    const [giver, other] = [await servers.start(first), await servers.start(second)];

    const dead = await giver.post("/v1/buckets/jobs/draw", { holdMs: 200 });
    const next = await giver.post("/v1/buckets/jobs/draw", { holdMs: 2_000, maxWaitMs: 20_000 });
    const renewed = await other.post(`/v1/slots/${next.json.slot.id}/renew`, { holdMs: 600_000 });
    const gone = await other.post(`/v1/slots/${dead.json.slot.id}/renew`, { holdMs: 1_000 });
    // Longer than its giver was to hold it.
    const refused = await giver.post("/v1/buckets/jobs/draw", { maxWaitMs: 3_500 });

    expect([next.status, renewed.status, gone.status]).toEqual([200, 200, 404]);
    expect(refused.status).toBe(429);
  });

  it.each([
    ["Redis", {}],
    ["memory", { redis: undefined }],
  ])("is over at every server once it was released, with %s", async (where, options) => {
    const first = where === "Redis" ? sluices.open() : createSluice(options);
    const second = where === "Redis" ? sluices.open() : first;
    const limits = [concurrency(1), ...tokens().limits];
    for (const sluice of new Set([first, second])) sluice.bucket("gpt", { limits });
    const [giver, other] = [await servers.start(first), await servers.start(second)];
    const drawn = await giver.post("/v1/buckets/gpt/draw", { cost: { tokens: 400 } });
    const path = `/v1/slots/${drawn.json.slot.id}`;

    const settled = await other.post(`${path}/settle`, { cost: { tokens: 150 } });
    const again = await giver.post(`${path}/settle`, { cost: { tokens: 900 } });
    const renewed = await other.post(`${path}/renew`, { holdMs: 60_000 });
    const released = await other.post(`${path}/release`);
    const next = await giver.post("/v1/buckets/gpt/draw", { maxWaitMs: 10_000 });
    const late = [
      await giver.post(`${path}/settle`, { cost: { tokens: 1 } }),
      await giver.post(`${path}/renew`, { holdMs: 60_000 }),
      await giver.post(`${path}/release`),
    ];

    expect([settled.json.booked, again.json.booked]).toEqual([true, false]);
    expect([renewed.status, released.status, next.status]).toEqual([200, 200, 200]);
    expect(late.map(({ status }) => status)).toEqual([404, 404, 404]);
    if (where === "memory") await first.close();
  });

  it("accepts its id, however long its bucket and keys are", async () => {
    const sluice = sluices.open();
    const names = ["user", "team", "path"];
    const limit = () => ({ limits: [concurrency(1)] });
    const long = "桶".repeat(256);
    sluice.bucket(long, { perKey: Object.fromEntries(names.map((name) => [name, limit()])) });
    const service = await servers.start(sluice);
    const keys = Object.fromEntries(names.map((name) => [name, "鍵".repeat(256)]));
    const path = `/v1/buckets/${encodeURIComponent(long)}/draw`;
    const ask = () => service.post(path, { keys, maxWaitMs: 10_000 });

    const drawn = await ask();
    const released = await service.post(`/v1/slots/${drawn.json.slot.id}/release`);

    expect([drawn.status, released.status]).toEqual([200, 200]);
    expect((await ask()).status).toBe(200);
  });

  it("rejects an id that its caller made or changed", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("gpt", tokens());
    const service = await servers.start(sluice);
    const drawn = await service.post("/v1/buckets/gpt/draw", { cost: { tokens: 400 } });
    const id = drawn.json.slot.id as string;
    const [said = "", signature = ""] = id.split(".");
    const text = Buffer.from(said, "base64url").toString();
    const dearer = Buffer.from(text.replace("400", "900")).toString("base64url");
    const other = createHmac("sha256", "a guess").update(said).digest().subarray(0, 16);
    const forged = [
      `${dearer}.${signature}`,
      `${said}.${other.toString("base64url")}`,
      `${said}.`,
      `${said}.${signature}.${signature}`,
      `${said}A.${signature}`,
      id.slice(0, -4),
    ];

    const answers = [];
    for (const each of forged) {
      answers.push(await service.post(`/v1/slots/${each}/settle`, { cost: { tokens: 0 } }));
    }

    expect(text).toContain("400");
    expect(answers.map(({ status }) => status)).toEqual(forged.map(() => 404));
    expect((await bucket.peek()).limits[0]!.remaining).toBe(600);
  });

  it("is for tokens with the bucket in their scope", async () => {
    const sluice = sluices.open();
    sluice.bucket("mine", { limits: [concurrency(5)] });
    sluice.bucket("theirs", { limits: [concurrency(5)] });
    const service = await servers.start(sluice, {
      tokens: [
        { token: "token-for-mine", role: "call", buckets: ["mine"] },
        { token: "token-for-theirs", role: "call", buckets: ["theirs"] },
        { token: "token-to-look", role: "view" },
      ],
    });
    const as = (token: string) => ({ authorization: `Bearer token-${token}` });
    const drawn = await service.post("/v1/buckets/mine/draw", {}, as("for-mine"));
    const path = `/v1/slots/${drawn.json.slot.id}/release`;
    const draws = [{ bucket: "mine" }, { bucket: "theirs" }];

    const statuses = [
      await service.post("/v1/buckets/mine/draw", {}),
      await service.post("/v1/buckets/mine/draw", {}, as("to-look")),
      await service.post("/v1/buckets/theirs/try", {}, as("for-mine")),
      await service.post("/v1/draw", { draws }, as("for-mine")),
      await service.post(path, {}, as("for-theirs")),
      await service.post(path, {}, { "x-sluice-token": "token-for-mine" }),
    ].map(({ status }) => status);

    expect(statuses).toEqual([401, 403, 403, 403, 403, 200]);
  });
});

describe("POST /v1/draw", () => {
  it("draws each independently, and returns a result for each", async () => {
    const sluice = sluices.open();
    sluice.bucket("one", { rate: "1/h" });
    sluice.bucket("two", { limits: [concurrency(1)] });
    const service = await servers.start(sluice);
    const draws = [
      { bucket: "one" },
      { bucket: "two", priority: "high" },
      { bucket: "one", maxWaitMs: 5 },
      { bucket: "none" },
    ];

    const { status, json } = await service.post("/v1/draw", { draws });

    expect(status).toBe(200);
    expect(json.results).toMatchObject([
      { slot: { bucket: "one" } },
      { slot: { bucket: "two", hasLease: true } },
      { problem: { status: 429, code: "ERR_WAIT_TOO_LONG" } },
      { problem: { status: 404 } },
    ]);
  });

  it("draws all or none, and gives back the drawn slots if one is missing", async () => {
    const sluice = sluices.open();
    const one = sluice.bucket("one", { limits: [concurrency(1)] });
    sluice.bucket("two", { rate: "1/h" });
    const service = await servers.start(sluice);
    const draws = [{ bucket: "one" }, { bucket: "two" }];
    const ask = () => service.post("/v1/draw", { mode: "all", maxWaitMs: 2_000, draws });

    const first = await ask();
    await service.post(`/v1/slots/${first.json.results[0].slot.id}/release`);
    const second = await ask();

    expect(first.json.results).toMatchObject([{ slot: { hasLease: true } }, { slot: {} }]);
    expect(second).toMatchObject({ status: 429, json: { code: "ERR_WAIT_TOO_LONG" } });
    await waitUntil(async () => (await one.tryDraw()).allowed, "the lease of the first is free");
  });

  it.each([
    ["no draws", { draws: [] }, "draws"],
    ["a mode that there is not", { mode: "some", draws: [{ bucket: "one" }] }, "mode"],
    ["a draw of no bucket", { draws: [{ key: "a" }] }, "draws.0.bucket"],
    ["an unknown option of one", { draws: [{ bucket: "one", max: 5 }] }, "draws.0.max"],
  ])("refuses %s by its name", async (_what, body, option) => {
    const service = await servers.start(sluices.open());

    const { status, json } = await service.post("/v1/draw", body);

    expect(status).toBe(400);
    expect(json).toMatchObject({ code: "ERR_INVALID_OPTION", option });
  });
});
