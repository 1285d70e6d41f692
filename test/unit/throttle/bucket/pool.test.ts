import { afterEach, describe, expect, expectTypeOf, it } from "vitest";
import {
  budget,
  createSluice,
  fixedWindow,
  leakyBucket,
  type Pool,
  type PoolCalls,
  type PoolOptions,
  type Sluice,
} from "sluice";
import { openai } from "sluice/llm";
import { rejectionOf } from "../../../support/async/rejection.ts";

let opened: Sluice[] = [];
afterEach(async () => {
  await Promise.all(opened.map((sluice) => sluice.close()));
  opened = [];
});

type Log = (facts: object, text: string) => void;

function open(log: Log = () => {}): Sluice {
  const sluice = createSluice({ redis: "memory", logger: { warn: log, error: log } });
  opened.push(sluice);
  return sluice;
}

const FAST = "1000/s";

function accounts(options: Partial<PoolOptions<{ readonly id: string }>> = {}, log?: Log) {
  return open(log).pool("accounts", {
    members: {
      east: { rate: FAST, value: { id: "E" } },
      west: { rate: FAST, value: { id: "W" } },
    },
    ...options,
  });
}

async function membersOf(pool: PoolCalls<unknown>, count: number): Promise<Set<string>> {
  const slots = await Promise.all(Array.from({ length: count }, () => pool.draw()));
  return new Set(slots.map(({ member }) => member));
}

describe("a pool", () => {
  it("draws slots with the name and the value of a member, from all members", async () => {
    const pool = accounts();

    const slots = await Promise.all(Array.from({ length: 10 }, () => pool.draw()));

    expect(slots.filter(({ member }) => member === "east")).toHaveLength(5);
    expect(slots.every(({ member, value }) => value.id === (member === "east" ? "E" : "W"))).toBe(
      true,
    );
    expectTypeOf(slots[0]!.value).toEqualTypeOf<{ readonly id: string }>();
  });

  it("calls a throttled function with the value of the member, and with its arguments", async () => {
    const pool = accounts();
    const call = pool.throttled(
      async ({ id }, text: string, count: number) => `${id} ${text}${count}`,
    );

    const results = await Promise.all([call("a", 1), call.with({ key: "acme" })("b", 2)]);

    expect(results.map((text) => text.slice(2))).toEqual(["a1", "b2"]);
    expect(results.every((text) => /^[EW] /.test(text))).toBe(true);
    expectTypeOf(call).parameters.toEqualTypeOf<[text: string, count: number]>();
    expect(await pool.run(({ id }) => id.length)).toBe(1);
  });

  it("decides at once by the member that the call uses, or that is free first", async () => {
    const pool = open().pool("p", {
      members: { a: { rate: "1/h", value: 1 }, b: { limits: [fixedWindow(5, "1h")], value: 2 } },
      prefer: ["a", "b"],
    });

    const first = await pool.tryDraw();
    const later = await Promise.all(Array.from({ length: 5 }, () => pool.tryDraw()));
    const refused = await pool.tryDraw();
    const refusedByOne = await pool.member("a").tryDraw();

    expect(first).toMatchObject({ allowed: true, slot: { member: "a", value: 1 } });
    expect(later.every(({ allowed, slot }) => allowed && slot.value === 2)).toBe(true);
    expect(later.at(-1)!.limits.map(({ name }) => name)).toEqual(["5 each 1h (member b)"]);
    expect(refused).toMatchObject({ allowed: false, remaining: 0 });
    expect(refusedByOne).toMatchObject({ allowed: false, limitedBy: "1/h (member a)" });
  });

  it("names the cooldown of a member that refuses a try", async () => {
    const pool = accounts({ prefer: ["east", "west"] });
    const refuse = pool.member("east").throttled(() => {
      throw Object.assign(new Error("429"), { status: 429, headers: { "retry-after": "60" } });
    });
    await refuse().catch(() => {});
    await pool.drainMember("west");

    await expect
      .poll(async () => (await pool.tryDraw()).limitedBy)
      .toBe("a cooldown (member east)");
  });

  it("lets a call use only one member", async () => {
    const west = accounts().member("west");

    expect(await membersOf(west, 5)).toEqual(new Set(["west"]));
    expect(west.value).toEqual({ id: "W" });
    expect(await west.run(({ id }) => id)).toBe("W");
    expect(await west.throttled(({ id }) => id)()).toBe("W");
  });

  it("sends requests to the base URL of the member, with its headers", async () => {
    const seen: string[] = [];
    const send = async (input: unknown, init: RequestInit = {}): Promise<Response> => {
      const headers = new Headers(init.headers);
      seen.push(`${String(input)} ${headers.get("authorization")} ${headers.get("x-own")}`);
      return new Response("fine");
    };
    const pool = open().pool("hosts", {
      members: {
        east: {
          rate: FAST,
          baseUrl: "https://east.example.com/openai/",
          headers: { authorization: "Bearer E" },
        },
        west: { rate: FAST, headers: { authorization: "Bearer W" } },
      },
    });
    const url = "https://api.example.com/v1/chat?a=1";
    const init = { headers: { authorization: "none", "x-own": "1" } };

    await pool.member("east").fetch.with({ fetch: send })(url, init);
    await pool.member("west").fetch.with({ fetch: send })(url, init);
    await pool.member("east").fetch.with({ fetch: send })(new Request(url, init));
    await pool.member("east").fetch.with({ fetch: send })("/openai/v1/models");

    expect(seen).toEqual([
      "https://east.example.com/openai/v1/chat?a=1 Bearer E 1",
      "https://api.example.com/v1/chat?a=1 Bearer W 1",
      "https://east.example.com/openai/v1/chat?a=1 Bearer E 1",
      "https://east.example.com/openai/v1/models Bearer E null",
    ]);
  });

  it("tries a refused request again at another member", async () => {
    const seen: string[] = [];
    const send = async (input: unknown): Promise<Response> => {
      seen.push(new URL(String(input)).hostname);
      const isRefused = seen.length === 1;
      const headers = { "retry-after": "60" };
      return new Response("", isRefused ? { status: 429, headers } : { status: 200 });
    };
    const pool = open().pool("hosts", {
      members: {
        east: { rate: FAST, baseUrl: "https://east.example.com" },
        west: { rate: FAST, baseUrl: "https://west.example.com" },
      },
      prefer: ["east", "west"],
    });

    const response = await pool.fetch.with({ fetch: send })("/v1/chat");

    expect(response.status).toBe(200);
    expect(seen).toEqual(["east.example.com", "west.example.com"]);
    const states = await pool.members();
    expect(states.map(({ name, coolingForMs }) => [name, coolingForMs > 0])).toEqual([
      ["east", true],
      ["west", false],
    ]);
  });

  it("logs the status of the response with which a member became unreachable", async () => {
    const logged: string[] = [];
    const pool = accounts({ prefer: ["east", "west"] }, (_facts, text) => logged.push(text));
    const send = async (): Promise<Response> => new Response("", { status: 503 });

    await pool.fetch.with({ fetch: send })("https://api.example.com/v1");

    expect(logged[0]).toBe(
      'Member "east" of pool "accounts" is unreachable after a failure (a response with status 503). The other members take its calls.',
    );
  });

  const SPENT = {
    error: { code: "insufficient_quota", message: "You exceeded your current quota" },
  };

  it.each([
    ["invalid credentials", 401, {}],
    ["an unpaid account", 402, {}],
    ["an account without credit", 429, SPENT],
  ])("lets the other members take the calls of one with %s", async (_what, status, body) => {
    const logged: string[] = [];
    const pool = accounts({ prefer: ["east", "west"] }, (_facts, text) => logged.push(text));
    const seen: string[] = [];
    const send = async (input: unknown, init?: RequestInit): Promise<Response> => {
      const member = new Headers(init?.headers).get("x-member") ?? "";
      seen.push(member);
      return Response.json(body, { status: member === "east" ? status : 200 });
    };
    await pool.addMember("east", { rate: FAST, headers: { "x-member": "east" } });
    await pool.addMember("west", { rate: FAST, headers: { "x-member": "west" } });
    const fetch = pool.fetch.with({ fetch: send });

    const first = await fetch("https://api.example.com/v1");
    const later = [];
    for (let call = 0; call < 3; call++) later.push((await fetch("https://x.example.com")).status);

    expect(first.status).toBe(200);
    expect(later).toEqual([200, 200, 200]);
    expect(seen).toEqual(["east", "west", "west", "west", "west"]);
    expect((await pool.members())[0]!.coolingForMs).toBeGreaterThan(50_000);
    expect(logged).toHaveLength(1);
    expect(logged[0]).toMatch(/^The account of member "east" of pool "accounts" cannot be used/);
  });

  it("takes out a member whose client throws that its credentials are wrong", async () => {
    const pool = accounts({ prefer: ["east", "west"] });
    const call = pool.throttled(({ id }) => {
      if (id === "E") throw Object.assign(new Error("Incorrect API key"), { status: 401 });
      return id;
    });

    expect(await rejectionOf(call())).toMatchObject({ status: 401 });

    expect(await Promise.all([call(), call()])).toEqual(["W", "W"]);
  });

  it("keeps the last member in, whatever its responses say about its account", async () => {
    const pool = accounts();
    await pool.drainMember("east");
    const call = pool.throttled(() => {
      throw Object.assign(new Error("Incorrect API key"), { status: 401 });
    });

    await Promise.all(Array.from({ length: 5 }, () => rejectionOf(call())));
    await pool.undrainMember("east");
    const errors = [];
    for (let each = 0; each < 20; each++) errors.push(await rejectionOf(call()));

    expect(errors.every((error) => (error as { status: number }).status === 401)).toBe(true);
    const members = await pool.members();
    expect(members.filter(({ coolingForMs }) => coolingForMs === 0)).toHaveLength(1);
  });

  it("sends the body of a request again at another member", async () => {
    const seen: string[] = [];
    const send = async (input: unknown, init?: RequestInit): Promise<Response> => {
      const request = new Request(input as Request, init);
      seen.push(`${new URL(request.url).hostname} ${request.method} ${await request.text()}`);
      return new Response("", { status: seen.length === 1 ? 429 : 200 });
    };
    const pool = open().pool("hosts", {
      members: {
        east: { rate: FAST, baseUrl: "https://east.example.com", headers: { "x-of": "east" } },
        west: { rate: FAST, baseUrl: "https://west.example.com" },
      },
      prefer: ["east", "west"],
    });
    const request = new Request("https://api.example.com/v1", { method: "POST", body: "hello" });

    const response = await pool.fetch.with({ fetch: send })(request);

    expect(response.status).toBe(200);
    expect(seen).toEqual(["east.example.com POST hello", "west.example.com POST hello"]);
  });

  it("keeps a path that equals that of the base URL", async () => {
    const seen: string[] = [];
    const send = async (input: unknown): Promise<Response> => {
      seen.push(String(input));
      return new Response("");
    };
    const members = { east: { rate: FAST, baseUrl: "https://east.example.com/v1" } };
    const pool = open().pool("hosts", { members });

    await pool.fetch.with({ fetch: send })("/v1?x=1");

    expect(seen).toEqual(["https://east.example.com/v1?x=1"]);
  });

  it("uses the leases of all members at once", async () => {
    const members = { a: { concurrency: 1 }, b: { concurrency: 1 } };
    const pool = open().pool("leases", { members });
    let running = 0;
    const together: number[] = [];
    const calls = Array.from({ length: 9 }, () =>
      pool.run(async () => {
        running += 1;
        await new Promise((resolve) => setTimeout(resolve, 20));
        together.push(running);
        running -= 1;
      }),
    );

    await Promise.all(calls);

    expect(Math.max(...together)).toBe(2);
    expect(together.filter((count) => count === 2).length).toBeGreaterThanOrEqual(3);
  });

  it("refuses a call that its only member never allows, although another one does", async () => {
    const members = { small: { rate: "10/s", burst: 2 }, big: { rate: "10/s", burst: 50 } };
    const pool = open().pool("sizes", { members });

    const error = await rejectionOf(pool.member("small").draw({ cost: 40 }));

    expect(error).toMatchObject({ code: "ERR_COST_TOO_LARGE" });
    expect((await pool.draw({ cost: 40 })).member).toBe("big");
  });

  it.each<[string, (pool: Pool<unknown>) => Promise<unknown>]>([
    ["no name", (pool) => pool.addMember(undefined as never, { rate: FAST })],
    ["no member", (pool) => pool.addMember("north", undefined as never)],
    ["no name to drain", (pool) => pool.drainMember(undefined as never)],
  ])("refuses a change with %s by name", async (_what, change) => {
    const pool = accounts();

    expect(await rejectionOf(change(pool as never))).toMatchObject({ code: "ERR_INVALID_OPTION" });
    expect((await pool.members()).map(({ name }) => name)).toEqual(["east", "west"]);
  });

  it("shows no value of a member in JSON", async () => {
    const slot = await accounts().draw();

    expect(slot.value.id).toMatch(/^[EW]$/);
    expect(JSON.stringify(slot)).not.toContain('"value"');
  });

  it("refuses an added member whose costs it would not read", async () => {
    const pool = accounts();
    const cost = (): { tokens: number } => ({ tokens: 1 });

    const error = await rejectionOf(pool.addMember("north", { rate: FAST, cost } as never));

    expect(error).toMatchObject({ code: "ERR_INVALID_OPTION", option: "north.cost" });
    expect((await pool.members()).map(({ name }) => name)).toEqual(["east", "west"]);
  });

  it("reads costs and settlements that its members declare, such as presets", async () => {
    const settled: unknown[] = [];
    const pool = open().pool("gpt", {
      members: {
        east: { ...openai({ requests: "6000/min", tokens: "600000/min" }), value: 1 },
        west: {
          limits: [leakyBucket(FAST), leakyBucket("10000/s", { unit: "tokens", burst: 10_000 })],
          settle: (result, { member }) => void settled.push([result, member]),
          value: 2,
        },
      },
    });
    const ask = pool.throttled(
      async (value, _request: { model: string; max_tokens: number }) => value,
    );
    const request = { model: "gpt-x", max_tokens: 100 };

    const results = await Promise.all([ask(request), ask(request)]);

    expect(new Set(results)).toEqual(new Set([1, 2]));
    expect(settled).toEqual([[2, "west"]]);
  });

  it("keeps calls away from a drained or removed member, and uses an added one", async () => {
    const pool = accounts();

    await pool.drainMember("east", { by: "ada", reason: "maintenance" });
    expect(await membersOf(pool, 5)).toEqual(new Set(["west"]));
    expect((await pool.members()).map(({ name, drained }) => [name, drained])).toEqual([
      ["east", true],
      ["west", false],
    ]);

    await pool.undrainMember("east");
    await pool.removeMember("west");
    expect(await membersOf(pool, 5)).toEqual(new Set(["east"]));

    await pool.addMember("north", { rate: FAST, value: { id: "N" } });
    expect(await membersOf(pool, 6)).toEqual(new Set(["east", "north"]));
    expect(await pool.member("north").run(({ id }) => id)).toBe("N");

    await pool.configure("code");
    expect(await membersOf(pool, 6)).toEqual(new Set(["east", "west"]));
  });

  it("says that all members are drained, and lets the calls that wait start when one is not any more", async () => {
    const logged: string[] = [];
    const pool = accounts({}, (_facts, text) => logged.push(text));
    await pool.drainMember("east");
    await pool.drainMember("west");
    const waiting = pool.draw();

    const tried = await pool.tryDraw();
    const late = await rejectionOf(pool.draw({ maxWaitMs: 20 }));

    const limitedBy = "a drain of all members";
    expect(tried).toMatchObject({ allowed: false, remaining: 0, limitedBy });
    expect(tried.limits.map(({ remaining }) => remaining)).toEqual([0]);
    expect(late).toMatchObject({ code: "ERR_WAIT_TOO_LONG", limitedBy });
    expect((await pool.status()).capPerSecond).toBe(0);
    expect(logged).toEqual([expect.stringContaining("has no member that takes calls")]);
    await pool.undrainMember("west");
    expect((await waiting).member).toBe("west");
  });

  it("says what keeps a call from each member that could take it", async () => {
    const members = { small: { rate: "10/s", burst: 2 }, big: { rate: "10/s", burst: 50 } };
    const pool = open().pool("sizes", { members });
    await pool.drainMember("big");

    const large = await pool.tryDraw({ cost: 40 });
    const ofBig = await pool.member("big").tryDraw();
    const small = await pool.tryDraw({ cost: 2 });
    await pool.configure({ members: { other: { rate: "10/s" }, small: null, big: null } });
    const unknown = await pool.tryDraw();

    expect(large.limitedBy).toBe("a drain of all members that allow its cost");
    expect(ofBig.limitedBy).toBe("a drain (member big)");
    expect(small.allowed).toBe(true);
    expect(unknown.limitedBy).toBe("members that this process has not declared");
  });

  it("refuses a call when the budgets of all members are spent, and not before", async () => {
    const usd = (amount: number) => ({
      limits: [leakyBucket(FAST), budget({ unit: "usd", amount, per: "month" })],
    });
    const pool = open().pool("paid", { members: { a: usd(1), b: usd(2) }, prefer: ["a", "b"] });
    const cost = { usd: 1 };

    const members = [];
    for (let call = 0; call < 3; call++) members.push((await pool.draw({ cost })).member);
    const error = await rejectionOf(pool.draw({ cost }));
    const tried = await pool.tryDraw({ cost });
    const ofOne = await rejectionOf(pool.member("b").draw({ cost }));

    expect(members).toEqual(["a", "b", "b"]);
    expect(error).toMatchObject({ code: "ERR_BUDGET_SPENT", unit: "usd", spent: 1, amount: 1 });
    expect((error as { limitedBy: string }).limitedBy).toBe("1/month usd (member a)");
    expect(tried).toMatchObject({ allowed: false, remaining: 0 });
    expect(ofOne).toMatchObject({ limitedBy: "2/month usd (member b)" });
  });

  it("lets calls wait for the budget of a member that says so", async () => {
    const limits = [
      leakyBucket(FAST),
      budget({ unit: "usd", amount: 1, per: "month", onSpent: "wait" }),
    ];
    const pool = open().pool("paid", { members: { a: { limits } } });
    const cost = { usd: 1 };
    await pool.draw({ cost });
    const waiting = pool.draw({ cost });

    const late = await rejectionOf(pool.draw({ cost, maxWaitMs: 20 }));
    await pool.grant({ usd: 1 }, { member: "a", reason: "demo day" });

    expect(late).toMatchObject({ code: "ERR_WAIT_TOO_LONG", limitedBy: "1/month usd (member a)" });
    expect((await waiting).member).toBe("a");
  });

  it("raises the budget of a member, shows it, and takes it back", async () => {
    const limits = [leakyBucket(FAST), budget({ unit: "usd", amount: 1, per: "month" })];
    const shared = [budget({ unit: "usd", amount: 9, per: "month" })];
    const pool = open().pool("paid", { members: { a: { limits }, b: { limits } }, limits: shared });
    const usdOf = async (member?: string) => {
      const balances = await pool.budgets({ ...(member !== undefined && { member }) });
      return balances.map((balance) => [balance.member, balance.amount, balance.granted]);
    };

    const granted = await pool.grant({ usd: 5 }, { member: "b", reason: "demo day" });
    await pool.grant({ usd: 2 }, { reason: "for all" });

    expect(granted).toMatchObject([{ member: "b", amount: 6, granted: 5 }]);
    expect(await usdOf()).toEqual([[undefined, 11, 2]]);
    expect(await usdOf("b")).toEqual([
      [undefined, 11, 2],
      ["b", 6, 5],
    ]);
    expect(await usdOf("a")).toEqual([
      [undefined, 11, 2],
      ["a", 1, 0],
    ]);
    await pool.draw({ cost: { usd: 6 } }); // only "b" has so much
    await pool.undo();
    await pool.undo();
    expect((await usdOf("b"))[1]).toEqual(["b", 1, 0]);
    const all = await pool.budgets({ all: true });
    expect(all.map(({ member, spent }) => [member, spent])).toEqual([
      [undefined, 6],
      ["b", 6],
    ]);
    const wrong = await rejectionOf(pool.grant({ usd: 1 }, { member: "c", reason: "typo" }));
    expect(wrong).toMatchObject({ code: "ERR_INVALID_OPTION", option: "member", value: "c" });
    expect((wrong as Error).message).toContain('pool("paid").grant()');
  });

  it("reports its members and their rate together in its status", async () => {
    const pool = accounts({ rate: "1500/s" });
    await pool.drainMember("west");

    const { members, capPerSecond, policy } = await pool.status();

    expect(members?.map(({ name, drained }) => [name, drained])).toEqual([
      ["east", false],
      ["west", true],
    ]);
    expect(members?.[0]?.limits.map(({ name }) => name)).toEqual(["1000/s (member east)"]);
    expect(capPerSecond).toBe(1_000);
    expect(policy).toBe("1500/s; members east 1000/s, west 1000/s (drained)");
  });

  it.each<[string, (pool: Pool<unknown>) => Promise<unknown>]>([
    ["addMember", (pool) => pool.addMember("b", { rate: "0/s" })],
    ["addMember", (pool) => pool.addMember("b", { rate: "1/s" }, { forMS: 5 } as never)],
    ["drainMember", (pool) => pool.drainMember("b")],
    ["drainMember", (pool) => pool.drainMember("a", { forMs: -1 })],
    ["undrainMember", (pool) => pool.undrainMember(undefined as never)],
    ["removeMember", (pool) => pool.removeMember("a")],
    ["configure", (pool) => pool.configure({ prefer: ["b"] })],
    ["member", async (pool) => pool.member("b")],
  ])("names itself and the method %s in an error", async (method, change) => {
    const error = await rejectionOf(change(open().pool("p", { members: { a: { rate: "1/s" } } })));

    expect((error as Error).message).toMatch(new RegExp(`^pool\\("p"\\)\\.${method}\\(\\)`));
  });

  it("leaves no override behind when a member is drained and used again", async () => {
    const pool = accounts();
    await pool.draw();
    await pool.drainMember("east");
    const drained = await pool.status();

    await pool.undrainMember("east");

    expect(drained.source).toBe("override");
    expect(await pool.status()).toMatchObject({
      source: "code",
      policy: expect.not.stringContaining("drained"),
    });
    await pool.configure({ rate: "500/s" });
    await pool.drainMember("east");
    await pool.undrainMember("east");
    expect((await pool.status()).source).toBe("override"); // the rate still is one
  });

  it("uses a drained member that is added again, whatever its undefined options", async () => {
    const pool = accounts();
    await pool.drainMember("east");

    await pool.addMember("east", { rate: FAST, drained: undefined, value: { id: "new" } });

    expect((await pool.members()).map(({ drained }) => drained)).toEqual([false, false]);
    expect(await pool.member("east").run(({ id }) => id)).toBe("new");
  });

  it("drains a member for a time", async () => {
    const pool = accounts();
    await pool.drainMember("east", { forMs: 60_000, by: "ada" });

    const { setBy } = await pool.status();

    expect(setBy).toMatchObject({ by: "ada" });
    expect(setBy!.endsInMs).toBeGreaterThan(50_000);
    expect(setBy!.endsInMs).toBeLessThanOrEqual(60_000);
  });

  it("changes nothing if an added member is in force already", async () => {
    const pool = accounts();
    await pool.draw();
    const { generation } = await pool.peek();

    await pool.addMember("west", { rate: FAST, value: { id: "new" } });

    expect((await pool.peek()).generation).toBe(generation);
    expect(await pool.member("west").run(({ id }) => id)).toBe("new");
  });

  it("is the same object each time", () => {
    const sluice = open();
    const options = { members: { a: { rate: FAST, value: 1 } } };

    expect(sluice.pool("p", options)).toBe(sluice.pool("p", options));
    expect(() => sluice.pool("p", { members: { a: { rate: FAST, value: 2 } } })).toThrow(/members/);
    expect(() => sluice.pool("p", { members: { a: { rate: "1/s", value: 1 } } })).toThrow(
      /members/,
    );
  });

  it("refuses a call that costs more than each member ever allows", async () => {
    const limits = (burst: number) => [leakyBucket("100/s", { unit: "tokens", burst })];
    const pool = open().pool("p", {
      members: { a: { limits: limits(5) }, b: { limits: limits(9) } },
    });

    const { member } = await pool.draw({ cost: { tokens: 9 } });
    const error = await rejectionOf(pool.draw({ cost: { tokens: 10 } }));

    expect(member).toBe("b");
    expect(error).toMatchObject({
      code: "ERR_COST_TOO_LARGE",
      cost: 10,
      maxCost: 9,
      limitedBy: "100/s with a burst of 9 tokens (member b)",
    });
  });

  it("names the largest cost that a single member allows, if a call may use only that one", async () => {
    const members = { small: { rate: "10/s", burst: 2 }, big: { rate: "10/s", burst: 50 } };
    const pool = open().pool("sizes", { members });

    const error = await rejectionOf(pool.member("small").draw({ cost: 60 }));

    expect(error).toMatchObject({ code: "ERR_COST_TOO_LARGE", maxCost: 2 });
    expect((error as { limitedBy: string }).limitedBy).toContain("(member small)");
  });

  it("refuses a call that cannot start in time, and says what delays it", async () => {
    const pool = open().pool("p", { members: { a: { rate: "1/h" }, b: { rate: "1/h" } } });
    await Promise.all([pool.draw(), pool.draw()]);

    const error = await rejectionOf(pool.draw({ maxWaitMs: 50 }));

    expect(error).toMatchObject({ code: "ERR_WAIT_TOO_LONG" });
    expect((error as { limitedBy: string }).limitedBy).toMatch(/^1\/h \(member [ab]\)$/);
  });
});

describe("the options of a pool", () => {
  const ONE = { rate: "1/s" };
  const many = Object.fromEntries(Array.from({ length: 33 }, (_, index) => [`m${index}`, ONE]));

  it.each([
    ["members", {}, "members"],
    ["no members", { members: {} }, "members"],
    ["a list", { members: [ONE] }, "members"],
    ["too many members", { members: many }, "members"],
    ["a name with a control character", { members: { "a\u0001": ONE } }, "members"],
    ["a member without limits", { members: { a: {} } }, "members.a.rate"],
    ["a rate", { members: { a: { rate: "0/s" } } }, "members.a.rate"],
    ["an unknown option", { members: { a: { ...ONE, rat: 1 } } }, "members.a.rat"],
    ["a base URL", { members: { a: { ...ONE, baseUrl: "east" } } }, "members.a.baseUrl"],
    ["headers", { members: { a: { ...ONE, headers: "x" } } }, "members.a.headers"],
    [
      "a user in a URL",
      { members: { a: { ...ONE, baseUrl: "http://u:p@h" } } },
      "members.a.baseUrl",
    ],
    [
      "a query in a URL",
      { members: { a: { ...ONE, baseUrl: "http://h?a" } } },
      "members.a.baseUrl",
    ],
    ["a header", { members: { a: { ...ONE, headers: { a: "\u2028" } } } }, "members.a.headers"],
    ["drained", { members: { a: { ...ONE, drained: 1 } } }, "members.a.drained"],
    ["a shadow", { members: { a: { ...ONE, shadow: true } } }, "members.a.shadow"],
    ["an unknown member", { members: { east: ONE }, prefer: ["eats"] }, "prefer"],
    ["one member twice", { members: { a: ONE }, prefer: ["a", "a"] }, "prefer"],
    ["no preferred member", { members: { a: ONE }, prefer: [] }, "prefer"],
    ["prefer", { members: { a: ONE }, prefer: "a" }, "prefer"],
    ["stickyMs alone", { members: { a: ONE }, stickyMs: 5 }, "stickyMs"],
    ["stickyBy", { members: { a: ONE }, stickyBy: "user" }, "stickyBy"],
    [
      "a burst that a shared window never holds",
      { members: { a: { rate: "9/s", burst: 9 } }, limits: [fixedWindow(5, "1s")] },
      "members.a.burst",
    ],
    [
      "a floor of a unit that only members limit",
      {
        members: { a: { limits: [leakyBucket("1/s", { unit: "tokens" })] } },
        fair: { floors: { k: { tokens: "1/s" } } },
      },
      "fair.floors",
    ],
    ["a local share", { members: { a: ONE }, onStoreDown: { local: 1 } }, "onStoreDown"],
    ["a shadow without a limit", { members: { a: ONE }, rate: "1/s", shadow: true }, "shadow"],
  ])("refuse %s", (_, options, option) => {
    expect(() => open().pool("p", options as never)).toThrow(
      expect.objectContaining({ code: "ERR_INVALID_OPTION", option }),
    );
  });

  it.each([
    ["an own property", JSON.parse('{"__proto__":{"rate":"1/s"},"east":{"rate":"1/s"}}')],
    ["a prototype", { __proto__: ONE, east: ONE }],
  ])("refuse a member named __proto__ that is %s", async (_, members) => {
    const wrong = { code: "ERR_INVALID_OPTION", option: "members", value: "__proto__" };
    const pool = open().pool("p", { members: { east: ONE } });

    expect(() => open().pool("p", { members })).toThrow(expect.objectContaining(wrong));
    expect(await rejectionOf(pool.configure({ members }))).toMatchObject(wrong);
    expect(await rejectionOf(pool.addMember("__proto__", ONE))).toMatchObject(wrong);
  });

  it("let a member have the name of a property that each object has", async () => {
    const names = ["constructor", "toString", "hasOwnProperty"];
    const members = Object.fromEntries(names.map((name) => [name, { rate: FAST, value: name }]));
    const pool = open().pool("p", { members, prefer: names });

    await pool.drainMember("constructor");
    await pool.addMember("valueOf", { rate: FAST, value: "valueOf" });

    expect((await pool.draw()).value).toBe("toString");
    expect(await pool.member("valueOf").run((value) => value)).toBe("valueOf");
    expect((await pool.members()).map(({ name }) => name)).toEqual([...names, "valueOf"]);
  });

  it("name the closest member", () => {
    const options = { members: { east: ONE, west: ONE }, prefer: ["wst"] };

    expect(() => open().pool("p", options)).toThrow(/did you mean west\?/);
  });

  it("belong to pools only", async () => {
    const sluice = open();
    const bucket = sluice.bucket("b", ONE);

    expect(() => sluice.bucket("c", { members: { a: ONE } } as never)).toThrow(/members/);
    const error = await rejectionOf(bucket.configure({ members: { a: ONE } } as never));
    expect(error).toMatchObject({ code: "ERR_INVALID_OPTION", option: "members" });
  });

  it.each([
    ["the last member", (pool: Pool<unknown>) => pool.removeMember("a")],
    ["an unknown member", (pool: Pool<unknown>) => pool.removeMember("b")],
    ["an unknown member that is drained", (pool: Pool<unknown>) => pool.drainMember("b")],
    ["limits", (pool: Pool<unknown>) => pool.addMember("b", { rate: "0/s" })],
  ])("refuse %s in a live change", async (_, change) => {
    const error = await rejectionOf(change(open().pool("p", { members: { a: ONE } })));

    expect(error).toMatchObject({ code: "ERR_INVALID_OPTION" });
  });
});
