import { describe, expect, it } from "vitest";
import { budget, type Pool, type PoolMember } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { closedUrl } from "../../support/servers/closed-url.ts";
import { fakeApis, type ApiAnswer } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const apis = fakeApis();

/** Reads the whole request, and then closes the connection. */
const HANGS_UP: ApiAnswer = { stream: (response) => response.socket?.destroy() };

type Urls = Readonly<Record<string, string>>;

function poolOf(urls: Urls, of: PoolMember = { rate: "1000/s" }): Pool {
  const entries = Object.entries(urls).map(([name, baseUrl]) => [name, { ...of, baseUrl }]);
  const logger = { warn() {}, error() {} };
  return sluices.open({ logger }).pool("accounts", {
    members: Object.fromEntries(entries),
    prefer: Object.keys(urls),
    limits: [budget({ unit: "usd", amount: 10, per: "year" })],
  });
}

async function twoMembers(first: ApiAnswer) {
  const [east, west] = [await apis.start(() => first), await apis.start(() => ({}))];
  return { east, west, pool: poolOf({ east: east.url, west: west.url }) };
}

const POST = { method: "POST", body: "once" };

describe("a request of pool.fetch to a member whose account cannot be used", () => {
  it.each([401, 402])("goes to another member after a %i", async (status) => {
    const { east, west, pool } = await twoMembers({ status });

    const response = await pool.fetch.with({ cost: { usd: 3 } })("/v1/chat", POST);

    expect(response.status).toBe(200);
    expect(east.calls).toHaveLength(1);
    expect(west.calls.map(({ body }) => body)).toEqual(["once"]);
    expect((await pool.budgets())[0]!.spent).toBe(3);
  });

  it("gets the response of the last member if no account can be used", async () => {
    const bad = await Promise.all(
      Array.from({ length: 5 }, () => apis.start(() => ({ status: 401 }))),
    );
    const pool = poolOf(Object.fromEntries(bad.map(({ url }, index) => [`m${index}`, url])));

    const response = await pool.fetch("/v1/chat", POST);

    expect(response.status).toBe(401);
    expect(bad.flatMap(({ calls }) => calls)).toHaveLength(3);
  });

  it.each([
    ["with one try", { tries: 1 }],
    ["with `retry: false`", { retry: false }],
    ["if `retry` says so", { retry: () => false }],
    ["with `feedback: false`", { feedback: false }],
  ] as const)("gets its response %s", async (_when, options) => {
    const { west, pool } = await twoMembers({ status: 401 });

    const response = await pool.fetch.with(options)("/v1/chat", POST);

    expect(response.status).toBe(401);
    expect(west.calls).toHaveLength(0);
  });

  it("gets its response if it is for this member only", async () => {
    const { east, west, pool } = await twoMembers({ status: 401 });

    const response = await pool.member("east").fetch("/v1/chat", POST);

    expect(response.status).toBe(401);
    expect([east.calls.length, west.calls.length]).toEqual([1, 0]);
  });

  it("gets its response if no other member has a slot in time", async () => {
    const [east, west] = [await apis.start(() => ({ status: 401 })), await apis.start(() => ({}))];
    const pool = poolOf({ east: east.url, west: west.url }, { rate: "1/min" });
    await pool.member("west").draw();

    const response = await pool.fetch.with({ maxWaitMs: 50 })("/v1/chat", POST);

    expect(response.status).toBe(401);
    expect(west.calls).toHaveLength(0);
  });

  it("gets its response if that follows a redirect, because the first request was carried out", async () => {
    const denied = await apis.start(() => ({ status: 401 }));
    const { west, pool } = await twoMembers({ status: 303, headers: { location: denied.url } });

    const response = await pool.fetch("/v1/chat", POST);

    expect(response.status).toBe(401);
    expect(west.calls).toHaveLength(0);
  });
});

describe("a request of pool.fetch to an unreachable member", () => {
  it.each([
    ["of an idempotent method", { method: "PUT", body: "twice" }],
    ["that follows no redirect", { ...POST, redirect: "error" as const }],
  ])("goes to another member if it is one %s", async (_kind, init) => {
    const west = await apis.start(() => ({}));
    const pool = poolOf({ east: await closedUrl(), west: west.url });

    const response = await pool.fetch.with({ cost: { usd: 3 } })("/v1/chat", init);

    expect(response.status).toBe(200);
    expect(west.calls.map(({ body }) => body)).toEqual([init.body]);
    expect((await pool.budgets())[0]!.spent).toBeGreaterThanOrEqual(3);
  });

  it("costs nothing at the member that it did not reach", async () => {
    const west = await apis.start(() => ({}));
    const pool = poolOf({ east: await closedUrl(), west: west.url });

    await pool.fetch.with({ cost: { usd: 3 } })("/v1/chat", { ...POST, redirect: "error" });

    expect((await pool.budgets())[0]!.spent).toBe(3);
  });

  it("fails if a redirect may have led there", async () => {
    const nowhere = await closedUrl();
    const { east, west, pool } = await twoMembers({ status: 303, headers: { location: nowhere } });

    const error = await rejectionOf(pool.fetch("/v1/chat", POST));

    expect(error).toMatchObject({ message: "fetch failed" });
    expect([east.calls.length, west.calls.length]).toEqual([1, 0]);
  });

  it("fails if the member may have carried it out", async () => {
    const { east, west, pool } = await twoMembers(HANGS_UP);

    const error = await rejectionOf(pool.fetch("/v1/chat", { ...POST, redirect: "error" }));

    expect(error).toMatchObject({ message: "fetch failed" });
    expect([east.calls.length, west.calls.length]).toEqual([1, 0]);
  });

  it("goes to another member if it is idempotent, even if the member has got it", async () => {
    const { east, west, pool } = await twoMembers(HANGS_UP);

    const response = await pool.fetch("/v1/chat");

    expect(response.status).toBe(200);
    expect([east.calls.length, west.calls.length]).toEqual([1, 1]);
  });

  it("fails if no other member takes calls", async () => {
    const pool = poolOf({ east: await closedUrl() });

    expect(await rejectionOf(pool.fetch("/v1/models"))).toMatchObject({ message: "fetch failed" });
  });

  it("fails once its signal has aborted", async () => {
    const { west, pool } = await twoMembers(HANGS_UP);
    const leaving = new AbortController();
    pool.on("unreachable", () => leaving.abort(new Error("left")));

    const error = await rejectionOf(pool.fetch("/v1/chat", { signal: leaving.signal }));

    expect(error).toMatchObject({ message: "left" });
    expect(west.calls).toHaveLength(0);
  });
});

describe("a function with `tries` of a pool", () => {
  type Run = (member: string) => Promise<unknown>;

  let opened = 0;

  function valued({ east = "1000/s", west = "1000/s" } = {}): Pool<string> {
    return sluices.open({ logger: { warn() {}, error() {} } }).pool(`valued-${(opened += 1)}`, {
      members: { east: { rate: east, value: "east" }, west: { rate: west, value: "west" } },
      prefer: ["east", "west"],
    } as const);
  }

  /** A call that fails at the member "east". */
  function failing(fail: () => Promise<unknown>): { seen: string[]; run: Run } {
    const seen: string[] = [];
    const run: Run = async (member) => {
      seen.push(member);
      return member === "east" ? fail() : "done";
    };
    return { seen, run };
  }

  const unauthorized = (): Promise<never> =>
    Promise.reject(Object.assign(new Error("key"), { status: 401 }));

  it.each([
    ["throws a 401", unauthorized],
    ["returns a 402", async () => new Response("", { status: 402 })],
    ["cannot connect", async () => fetch(await closedUrl())],
  ])("runs again with another member if it %s", async (_what, fail) => {
    const { seen, run } = failing(fail);

    const results = [await valued().run(run, { tries: 2 })];
    results.push(await valued().throttled(run, { tries: 3, concurrency: 1 })());

    expect(results).toEqual(["done", "done"]);
    expect(seen).toEqual(["east", "west", "east", "west"]);
  });

  it("runs once without the option, and for one member", async () => {
    const { seen, run } = failing(unauthorized);
    const pool = valued();

    const errors = [await rejectionOf(pool.member("east").run(run, { tries: 5 }))];
    errors.push(await rejectionOf(valued().run(run)));

    expect(errors).toMatchObject([{ status: 401 }, { status: 401 }]);
    expect(seen).toEqual(["east", "east"]);
  });

  it("runs once if its connection ended in the middle", async () => {
    const api = await apis.start(() => HANGS_UP);
    const { seen, run } = failing(() => fetch(api.url, POST));

    const error = await rejectionOf(valued().run(run, { tries: 2 }));

    expect(error).toMatchObject({ message: "fetch failed" });
    expect(seen).toEqual(["east"]);
  });

  it("waits for `maxWaitMs` at most, with all its members together", async () => {
    const { seen, run } = failing(unauthorized);
    const pool = valued({ east: "20/min", west: "6/min" });
    for (const member of ["east", "west"]) await pool.member(member).draw();

    const error = await rejectionOf(pool.run(run, { tries: 2, maxWaitMs: 7_500 }));

    // The first wait takes 3 s. The second one would take 7 s more.
    expect(seen).toEqual(["east"]);
    expect(error).toMatchObject({ code: "ERR_WAIT_TOO_LONG" });
  });

  it.each([0, 33, 1.5, "2"])("refuses %j tries", async (tries) => {
    const wrong = { tries: tries as number };

    const error = await rejectionOf(valued().run(async () => 1, wrong));

    expect(error).toMatchObject({ code: "ERR_INVALID_OPTION", option: "tries" });
    expect(() => valued().throttled(async () => 1, wrong)).toThrow(/"tries"|tries/);
  });
});
