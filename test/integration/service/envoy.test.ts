import { describe, expect, it, onTestFinished } from "vitest";
import { concurrency, createSluice, fixedWindow, type Sluice } from "sluice";
import type { GrpcOptions } from "sluice/server";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { descriptor, envoyClients, type EnvoyClient } from "../../support/server/envoy/client.ts";
import { services } from "../../support/server/service.ts";
import { closedUrl } from "../../support/servers/closed-url.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const servers = services();
const clients = envoyClients();

const ANN = descriptor(["user", "ann"]);
const BOB = descriptor(["user", "bob"]);
const QUIET = { warn: () => {}, error: () => {} };

async function start(sluice: Sluice, grpc: GrpcOptions = {}): Promise<EnvoyClient> {
  const service = await servers.start(sluice, { grpc: { port: 0, ...grpc } });
  return clients.open(service.grpc);
}

describe("ShouldRateLimit", () => {
  it("lets pass what its bucket has room for, and then refuses with the limit and the headers of HTTP", async () => {
    const sluice = sluices.open();
    sluice.bucket("edge", { perKey: { limits: [fixedWindow(2, "1d")] } });
    const envoy = await start(sluice);
    const request = { domain: "edge", descriptors: [ANN] };

    const answers = [await envoy.ask(request), await envoy.ask(request), await envoy.ask(request)];

    expect(answers.map(({ overall_code }) => overall_code)).toEqual(["OK", "OK", "OVER_LIMIT"]);
    expect(answers.map(({ statuses }) => statuses[0]!.limit_remaining)).toEqual([1, 0, 0]);
    const [first, , last] = answers;
    expect(first!.statuses).toMatchObject([
      { code: "OK", current_limit: { name: "2 each 1d", requests_per_unit: 2, unit: "DAY" } },
    ]);
    expect(first!.headers["ratelimit-policy"]).toBe('"2 each 1d";q=2;w=86400');
    expect(first!.headers).not.toHaveProperty("retry-after");
    const untilReset = last!.statuses[0]!.duration_until_reset!;
    expect(last!.statuses[0]!.code).toBe("OVER_LIMIT");
    expect(untilReset.seconds + untilReset.nanos / 1e9).toBeGreaterThan(0);
    expect(Number(last!.headers["retry-after"])).toBe(
      Math.max(1, Math.ceil(untilReset.seconds + untilReset.nanos / 1e9)),
    );
    expect(last!.headers["ratelimit"]).toMatch(/^"2 each 1d";r=0;t=\d+$/);
    expect((await envoy.ask({ ...request, descriptors: [BOB] })).overall_code).toBe("OK");
  });

  it("lets pass what some member of a pool has room for, and names the member and the drain", async () => {
    const sluice = sluices.open();
    const daily = (count: number) => ({ limits: [fixedWindow(count, "1d")] });
    const pool = sluice.pool("edge", {
      members: { east: daily(1), west: daily(2) },
      prefer: ["east", "west"],
    });
    const envoy = await start(sluice);
    const request = { domain: "edge", descriptors: [ANN] };

    const answers = [];
    for (let each = 0; each < 4; each++) answers.push(await envoy.ask(request));
    await pool.drainMember("east");
    await pool.drainMember("west");
    const drained = await envoy.ask(request);

    const names = answers.map(({ statuses }) => statuses[0]!.current_limit!.name);
    expect(answers.map(({ overall_code }) => overall_code)).toEqual([
      "OK",
      "OK",
      "OK",
      "OVER_LIMIT",
    ]);
    expect(names.slice(0, 3)).toEqual([
      "1 each 1d (member east)",
      "2 each 1d (member west)",
      "2 each 1d (member west)",
    ]);
    expect(names[3]).toMatch(/\(member (?:east|west)\)$/);
    expect(drained.overall_code).toBe("OVER_LIMIT");
    expect(drained.statuses[0]!.limit_remaining).toBe(0);
  });

  it("gives the slots of a pool back if another descriptor is refused, and refuses leases by name", async () => {
    const sluice = sluices.open();
    const pool = sluice.pool("edge", { members: { east: { limits: [fixedWindow(9, "1d")] } } });
    sluice.pool("leased", { members: { east: { concurrency: 1 } } });
    sluice.bucket("full", { limits: [fixedWindow(1, "1d")] });
    await sluice.bucket("full").draw();
    const draw = ({ entries: [first] }: { entries: readonly { value: string }[] }) => ({
      bucket: first!.value,
    });
    const envoy = await start(sluice, { draw });
    const of = (...names: string[]) => ({
      domain: "edge",
      descriptors: names.map((name) => descriptor(["of", name])),
    });

    expect((await envoy.ask(of("edge", "full"))).overall_code).toBe("OVER_LIMIT");
    const error = await rejectionOf(envoy.ask(of("leased")));

    await waitUntil(
      async () => (await pool.members())[0]!.limits[0]!.remaining === 9,
      "the slot is given back",
    );
    expect((error as Error).message).toMatch(/limits how many calls run at once/);
    expect((await sluice.bucket("leased").tryDraw()).allowed).toBe(true);
  });

  it("returns a pace in the unit in which it is a whole number", async () => {
    const sluice = sluices.open();
    sluice.bucket("fast", { rate: "100/s" });
    sluice.bucket("slow", { rate: "90/min" });
    const envoy = await start(sluice);

    const limits = await Promise.all(
      ["fast", "slow"].map(async (domain) => {
        const { statuses } = await envoy.ask({ domain, descriptors: [ANN] });
        return statuses[0]!.current_limit;
      }),
    );

    expect(limits).toEqual([
      { name: "100/s", requests_per_unit: 100, unit: "SECOND" },
      { name: "90/min", requests_per_unit: 90, unit: "MINUTE" },
    ]);
  });

  it("takes the values of the entries as a path, the widest first", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("edge", {
      perKey: [{ rate: "3/h", burst: 3 }, { rate: "1/h" }],
    });
    const envoy = await start(sluice);
    const at = (path: string) => ({
      domain: "edge",
      descriptors: [descriptor(["tenant", "acme"], ["path", path])],
    });

    const codes = [];
    for (const path of ["/a", "/a", "/b", "/c", "/d"]) {
      codes.push((await envoy.ask(at(path))).overall_code);
    }

    expect(codes).toEqual(["OK", "OVER_LIMIT", "OK", "OK", "OVER_LIMIT"]);
    expect((await bucket.tryDraw({ key: ["acme", "/e"] })).allowed).toBe(false);
    expect((await bucket.tryDraw({ key: ["other", "/a"] })).allowed).toBe(true);
  });

  it("takes each entry as the key of its name, where perKey has names, also of a bucket that others declare", async () => {
    const declaring = sluices.open();
    const perKey = { remote_address: { rate: "1/h" }, path: { rate: "1/h" } };
    await declaring.bucket("edge", { perKey }).draw({ keys: { path: "/taken" } });
    const sluice = sluices.open();
    await waitUntil(async () => (await sluice.find("edge")) !== undefined, "it is told of");
    const envoy = await start(sluice);
    const of = (address: string, path: string) => ({
      domain: "edge",
      descriptors: [descriptor(["remote_address", address], ["path", path])],
    });

    const taken = await envoy.ask(of("10.0.0.1", "/taken"));
    const free = await envoy.ask(of("10.0.0.1", "/free"));
    const again = await envoy.ask(of("10.0.0.1", "/other"));

    expect(taken.statuses[0]!.current_limit!.name).toBe("1/h (path)");
    expect([taken, free, again].map(({ overall_code }) => overall_code)).toEqual([
      "OVER_LIMIT",
      "OK",
      "OVER_LIMIT",
    ]);
  });

  it("takes of all descriptors or of none, and says which refuse", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("edge", { perKey: { rate: "1/h" } });
    await bucket.tryDraw({ key: "bob" });
    const envoy = await start(sluice);

    const refused = await envoy.ask({ domain: "edge", descriptors: [ANN, BOB] });

    expect(refused.overall_code).toBe("OVER_LIMIT");
    expect(refused.statuses.map(({ code }) => code)).toEqual(["OK", "OVER_LIMIT"]);
    expect(Number(refused.headers["retry-after"])).toBeGreaterThan(3_000);
    await waitUntil(
      async () => (await bucket.tryDraw({ key: "ann" })).allowed,
      "what ann would have taken is given back",
    );
  });

  it("counts the hits of the request, those of a descriptor before them, and none of what only asks", async () => {
    const sluice = sluices.open();
    sluice.bucket("edge", { perKey: { limits: [fixedWindow(10, "1h")] } });
    const envoy = await start(sluice);
    const left = async (hits_addend?: number, own?: number): Promise<number | string> => {
      const hits = own === undefined ? {} : { hits_addend: { value: own } };
      const descriptors = [{ ...ANN, ...hits }];
      const answer = await envoy.ask({
        domain: "edge",
        descriptors,
        ...(hits_addend === undefined ? {} : { hits_addend }),
      });
      return answer.overall_code === "OK" ? answer.statuses[0]!.limit_remaining : "OVER_LIMIT";
    };

    expect(await left()).toBe(9);
    expect(await left(0)).toBe(8);
    expect(await left(3)).toBe(5);
    expect(await left(4, 2)).toBe(3);
    expect(await left(1, 0)).toBe(2);
    await waitUntil(async () => (await left(1, 0)) === 2, "what only asked is given back");
    expect(await left(4)).toBe("OVER_LIMIT");
    expect(await left(11)).toBe("OVER_LIMIT");
    expect(await left(2 ** 32 - 1)).toBe("OVER_LIMIT");
    expect(await left(1, 2 ** 60)).toBe("OVER_LIMIT");
    expect(await left(3)).toBe(0);
  });

  it("holds a descriptor to the limit that it names, each of them by itself and over all servers", async () => {
    const [first, second] = [sluices.open(), sluices.open()];
    const bucket = first.bucket("edge", { perKey: { rate: "1/h" } });
    const both = [await start(first), await start(second)] as const;
    const limit = { requests_per_unit: 3, unit: "DAY" };
    const ask = (at: 0 | 1, given: typeof ANN) =>
      both[at].ask({ domain: "edge", descriptors: [given] });
    const path = descriptor(["user", "ann"], ["path", "/a"]);

    const answers = [];
    for (const at of [0, 1, 0, 1] as const) answers.push(await ask(at, { ...ANN, limit }));
    const other = await ask(1, { ...path, limit });
    const none = await ask(0, { ...BOB, limit: { requests_per_unit: 0, unit: "DAY" } });

    expect(answers.map(({ overall_code }) => overall_code)).toEqual([
      "OK",
      "OK",
      "OK",
      "OVER_LIMIT",
    ]);
    expect(answers[0]!.statuses).toMatchObject([
      { current_limit: { requests_per_unit: 3, unit: "DAY" }, limit_remaining: 2 },
    ]);
    expect(other.statuses[0]!.limit_remaining).toBe(2);
    expect(none.overall_code).toBe("OVER_LIMIT");
    expect((await bucket.tryDraw({ key: "ann" })).allowed).toBe(true);
  });

  it("lets pass a domain that no bucket has, or refuses it if that is asked for", async () => {
    const sluice = sluices.open();
    const request = { domain: "nobodys", descriptors: [ANN] };

    const allowing = await (await start(sluice)).ask(request);
    const refusing = await (await start(sluice, { unknown: "refuse" })).ask(request);

    expect(allowing).toMatchObject({ overall_code: "OK", statuses: [{ code: "OK" }] });
    expect(refusing).toMatchObject({
      overall_code: "OVER_LIMIT",
      statuses: [{ code: "OVER_LIMIT", current_limit: null }],
    });
  });

  it("draws what a function says of a descriptor", async () => {
    const sluice = sluices.open();
    const gpt = sluice.bucket("gpt", { limits: [fixedWindow(100, "1h", { unit: "tokens" })] });
    const envoy = await start(sluice, {
      draw: ({ domain, entries, hits }) =>
        entries[0]!.key === "model" ? { bucket: `${domain}t`, cost: { tokens: hits } } : undefined,
    });
    const model = descriptor(["model", "small"]);

    const answer = await envoy.ask({ domain: "gp", descriptors: [model, ANN], hits_addend: 60 });
    const refused = await envoy.ask({ domain: "gp", descriptors: [model], hits_addend: 60 });

    expect(answer.statuses.map(({ code }) => code)).toEqual(["OK", "OK"]);
    expect(refused.overall_code).toBe("OVER_LIMIT");
    expect((await gpt.tryDraw({ cost: { tokens: 40 } })).allowed).toBe(true);
  });

  it("limits by a value that can be no key, as a client may choose it", async () => {
    const sluice = sluices.open();
    sluice.bucket("edge", { perKey: { rate: "1/h" } });
    const envoy = await start(sluice);
    const codes = [];

    for (const value of ["/".repeat(5_000), "", "a\u0000b"]) {
      const request = { domain: "edge", descriptors: [descriptor(["path", value])] };
      codes.push((await envoy.ask(request)).overall_code, (await envoy.ask(request)).overall_code);
    }

    expect(codes).toEqual(["OK", "OVER_LIMIT", "OK", "OVER_LIMIT", "OK", "OVER_LIMIT"]);
  });

  it.each([
    ["no domain", { descriptors: [ANN] }, /domain/],
    ["no descriptor", { domain: "edge" }, /descriptors/],
    [
      "too many descriptors",
      { domain: "edge", descriptors: Array(1_001).fill(ANN) },
      /1000 at most/,
    ],
    ["a descriptor without entries", { domain: "edge", descriptors: [{}] }, /entries/],
    [
      "calls that are given back",
      { domain: "edge", descriptors: [{ ...ANN, is_negative_hits: true }] },
      /is_negative_hits/,
    ],
    [
      "a limit without a unit",
      {
        domain: "edge",
        descriptors: [{ ...ANN, limit: { requests_per_unit: 5, unit: "UNKNOWN" } }],
      },
      /SECOND, MINUTE, HOUR or DAY/,
    ],
    [
      "more entries than a key has names",
      { domain: "edge", descriptors: [ANN, descriptor(...Array(4).fill(["a", "b"] as const))] },
      /one to 3 names/,
    ],
  ])("answers INVALID_ARGUMENT to %s, and takes nothing", async (_what, request, reason) => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("edge", { perKey: { rate: "1/h" } });
    const envoy = await start(sluice);

    const refused = await rejectionOf(envoy.ask(request));

    expect(refused).toMatchObject({ code: 3, details: expect.stringMatching(reason) as string });
    await waitUntil(
      async () => (await bucket.tryDraw({ key: "ann" })).allowed,
      "nothing is taken, or it is given back",
    );
  });

  it("answers FAILED_PRECONDITION for a bucket that limits calls at once, and holds none of them", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("edge", { limits: [concurrency(1)] });
    const envoy = await start(sluice);

    const refused = await rejectionOf(envoy.ask({ domain: "edge", descriptors: [ANN] }));

    expect(refused).toMatchObject({ code: 9 });
    await waitUntil(async () => (await bucket.tryDraw()).allowed, "its lease is free");
  });

  it("answers UNAVAILABLE while Redis is unreachable, or as onStoreDown says", async () => {
    const redis = (await closedUrl()).replace("http", "redis");
    const sluice = createSluice({ redis, storeTimeoutMs: 200, logger: QUIET });
    onTestFinished(() => sluice.close());
    sluice.bucket("strict", { rate: "1/h" });
    sluice.bucket("open", { rate: "1/h", onStoreDown: "open" });
    const envoy = await start(sluice);

    const strict = await rejectionOf(envoy.ask({ domain: "strict", descriptors: [ANN] }));
    const open = await envoy.ask({ domain: "open", descriptors: [ANN] });

    expect(strict).toMatchObject({ code: 14, details: expect.stringContaining("Redis") as string });
    expect(open.overall_code).toBe("OK");
  });
});
