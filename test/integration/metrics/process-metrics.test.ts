import { Counter, Gauge, Registry, type OpenMetricsContentType } from "prom-client";
import { describe, expect, it } from "vitest";
import { createSluice } from "sluice";
import { PROCESS_METRICS } from "sluice/metrics";
import { block } from "../../support/async/block.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { valueOf, linesOf } from "../../support/metrics/exposition.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const WAIT = "sluice_bucket_wait_seconds";
const SLOTS = "sluice_bucket_slots_total";

describe("sluice.metrics()", () => {
  it("counts calls and how long they waited, by bucket and priority", async () => {
    const sluice = sluices.open();
    const metrics = await sluice.metrics();
    const bucket = sluice.bucket("api", { rate: "10/s", burst: 3 });

    await Promise.all([bucket.draw(), bucket.draw(), bucket.draw({ priority: "high" })]);
    await bucket.draw({ priority: "low" });
    const text = await metrics.text();

    const granted = { bucket: "api", outcome: "granted" };
    expect(valueOf(text, SLOTS, granted)).toBe(4);
    expect(valueOf(text, `${WAIT}_count`, { bucket: "api", priority: "normal" })).toBe(2);
    expect(valueOf(text, `${WAIT}_count`, { bucket: "api", priority: "high" })).toBe(1);
    expect(valueOf(text, `${WAIT}_count`, { bucket: "api", priority: "low" })).toBe(1);
    // At 10/s, the call behind a burst waits for most of an interval.
    const low = { bucket: "api", priority: "low" };
    expect(valueOf(text, `${WAIT}_sum`, low)).toBeGreaterThan(0.05);
    expect(valueOf(text, `${WAIT}_bucket`, { ...low, le: "0.05" })).toBe(0);
    expect(valueOf(text, `${WAIT}_bucket`, { ...low, le: "+Inf" })).toBe(1);
    expect(text).not.toMatch(/_ms\b/);
  });

  it("counts the calls of each member of a pool, and why members were stopped", async () => {
    const sluice = sluices.open();
    const metrics = await sluice.metrics();
    const rate = { rate: "1000/s" };
    const pool = sluice.pool("gpt", {
      members: { east: rate, west: rate, north: rate },
      prefer: ["east", "west", "north"],
    });
    const failing = (facts: object) => () => {
      throw Object.assign(new Error("failed"), facts);
    };

    await pool.tryDraw();
    await pool.draw();
    await rejectionOf(pool.member("east").run(failing({ status: 401 })));
    const headers = { "retry-after": "60" };
    await rejectionOf(pool.member("west").run(failing({ status: 429, headers })));
    await rejectionOf(pool.member("north").run(failing({ code: "ECONNREFUSED" })));

    const callsOf = async (member: string) =>
      valueOf(await metrics.text(), "sluice_pool_calls_total", { bucket: "gpt", member });
    const stopsOf = async (member: string, cause: string) =>
      valueOf(await metrics.text(), "sluice_pool_stops_total", { bucket: "gpt", member, cause });
    expect([await callsOf("east"), await callsOf("west"), await callsOf("north")]).toEqual([
      3, 1, 1,
    ]);
    await expect.poll(() => stopsOf("east", "account")).toBe(1);
    await expect.poll(() => stopsOf("west", "refusal")).toBe(1);
    await expect.poll(() => stopsOf("north", "unreachable")).toBe(1);
  });

  it("counts rejected calls by every reason, and returned slots", async () => {
    const sluice = sluices.open();
    const metrics = await sluice.metrics();
    const bucket = sluice.bucket("api", { rate: "1/min", maxWaiting: 1 });
    await bucket.draw();

    const waiting = new AbortController();
    const held = bucket.draw({ signal: waiting.signal, priority: "critical" }).catch(() => "left");
    const errors = await Promise.all([
      rejectionOf(bucket.draw()),
      rejectionOf(bucket.draw({ priority: "critical", cost: 7 })),
    ]);
    const tries = [await bucket.tryDraw(), await bucket.tryDraw()];
    waiting.abort();
    await held;
    const late = await rejectionOf(bucket.draw({ maxWaitMs: 1 }));

    expect([...errors, late]).toMatchObject([
      { code: "ERR_LINE_FULL" },
      { code: "ERR_COST_TOO_LARGE" },
      { code: "ERR_WAIT_TOO_LONG" },
    ]);
    expect(tries.map(({ allowed }) => allowed)).toEqual([false, false]);
    const text = await metrics.text();
    expect(valueOf(text, SLOTS, { bucket: "api", outcome: "refused" })).toBe(5);
    expect(valueOf(text, SLOTS, { bucket: "api", outcome: "granted" })).toBe(1);
  });

  it("counts tries that pass, and slots that no caller needed any more", async () => {
    const sluice = sluices.open();
    const metrics = await sluice.metrics();
    const tried = sluice.bucket("tried", { rate: "100/s", burst: 2 });
    await tried.tryDraw();
    const bucket = sluice.bucket("api", { rate: "100/s" });

    // Callers that leave while their slots, up to a horizon ahead, are held.
    await waitUntil(async () => {
      const leaving = new AbortController();
      const calls = Array.from({ length: 9 }, () => bucket.draw({ signal: leaving.signal }));
      const ended = Promise.allSettled(calls);
      await calls[0];
      leaving.abort();
      await ended;
      const text = await metrics.text();
      return valueOf(text, SLOTS, { bucket: "api", outcome: "returned" }) > 0;
    }, "slots went back");

    const text = await metrics.text();
    expect(valueOf(text, SLOTS, { bucket: "tried", outcome: "granted" })).toBe(1);
    expect(linesOf(text, `${WAIT}_count`).join()).not.toContain("tried");
  });

  it("counts slots for which a busy process was too late", async () => {
    const sluice = sluices.open();
    const metrics = await sluice.metrics();
    const bucket = sluice.bucket("api", { rate: "200/s" });

    await waitUntil(async () => {
      const calls = Array.from({ length: 9 }, () => bucket.draw());
      await calls[0];
      block(60);
      await Promise.all(calls);
      return valueOf(await metrics.text(), SLOTS, { bucket: "api", outcome: "late" }) > 0;
    }, "slots came too late");

    const text = await metrics.text();
    const granted = valueOf(text, SLOTS, { bucket: "api", outcome: "granted" });
    expect(granted % 9).toBe(0);
  });

  it("times each request to Redis, by its name", async () => {
    const sluice = sluices.open();
    const metrics = await sluice.metrics();
    const bucket = sluice.bucket("api", { rate: "100/s" });

    await bucket.draw();
    await bucket.peek();
    await bucket.pause({ forMs: 1 });
    await sluice.overview();

    const text = await metrics.text();
    const name = "sluice_store_duration_seconds_count";
    for (const command of ["draw", "peek", "steer", "note_change", "bucket_names"]) {
      expect(valueOf(text, name, { command })).toBeGreaterThan(0);
    }
    expect(valueOf(text, name, { command: "draw" })).toBe(1);
  });

  it("counts nothing before it is called, and continues after the sluice is closed", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("api", { rate: "100/s", burst: 5 });
    await bucket.draw();
    const metrics = await sluice.metrics();
    await bucket.draw();

    await sluice.close();

    const text = await metrics.text();
    expect(valueOf(text, SLOTS, { bucket: "api", outcome: "granted" })).toBe(1);
    expect(await rejectionOf(sluice.metrics())).toMatchObject({ code: "ERR_CLOSED" });
  });
});

describe("a register of metrics", () => {
  it("is the sluice's own, or the application's, with its labels and its own metrics", async () => {
    const sluice = sluices.open();
    const register = new Registry();
    register.setDefaultLabels({ app: "shop" });
    new Gauge({ name: "app_up", help: "Is up.", registers: [register] }).set(1);
    const [own, again, shared] = [
      await sluice.metrics(),
      await sluice.metrics({}),
      await sluice.metrics({ register }),
    ];
    await sluice.bucket("api", { rate: "100/s" }).draw();

    expect(again.register).toBe(own.register);
    expect(shared.register).toBe(register);
    expect(own.contentType).toBe("text/plain; version=0.0.4; charset=utf-8");
    const granted = { bucket: "api", outcome: "granted" };
    expect(valueOf(await own.text(), SLOTS, granted)).toBe(1);
    expect(valueOf(await register.metrics(), SLOTS, { ...granted, app: "shop" })).toBe(1);
    expect(valueOf(await register.metrics(), "app_up", { app: "shop" })).toBe(1);
    expect(await own.text()).not.toContain("app_up");
    const json = await register.getMetricsAsJSON();
    const found = json.find(({ name }) => name === SLOTS)!.values;
    expect(found).toContainEqual({ value: 1, labels: { ...granted, app: "shop" } });
  });

  it("has the sum of two sluices, and loses nothing when one of them closes", async () => {
    const [a, b] = [sluices.open(), sluices.open()];
    const register = new Registry();
    await a.metrics({ register });
    const metrics = await b.metrics({ register });
    await metrics.text();
    await a.bucket("api", { rate: "100/s" }).draw();
    await b.bucket("api", { rate: "100/s" }).draw();
    const granted = { bucket: "api", outcome: "granted" };
    expect(valueOf(await metrics.text(), SLOTS, granted)).toBe(2);

    await a.close();

    expect(valueOf(await metrics.text(), SLOTS, granted)).toBe(2);
    expect(
      valueOf(await metrics.text(), `${WAIT}_count`, { bucket: "api", priority: "normal" }),
    ).toBe(2);
  });

  it("gets its metrics again after it was cleared, and starts at 0 after a reset", async () => {
    const sluice = sluices.open();
    const register = new Registry();
    await sluice.metrics({ register });
    const bucket = sluice.bucket("api", { rate: "100/s", burst: 2 });
    await bucket.draw();
    register.clear();
    expect(await register.metrics()).not.toContain("sluice_");

    await sluice.metrics({ register });

    const granted = { bucket: "api", outcome: "granted" };
    expect(valueOf(await register.metrics(), SLOTS, granted)).toBe(1);
    register.resetMetrics();
    expect(valueOf(await register.metrics(), SLOTS, granted)).toBe(0);
    expect(linesOf(await register.metrics(), `${WAIT}_count`)).toEqual([]);
  });

  it("is written as OpenMetrics if it is an OpenMetrics register", async () => {
    const sluice = sluices.open();
    const register = new Registry<OpenMetricsContentType>();
    register.setContentType(Registry.OPENMETRICS_CONTENT_TYPE);
    const metrics = await sluice.metrics({ register });
    await sluice.bucket("api", { rate: "100/s" }).draw();

    const text = await metrics.text();

    expect(metrics.contentType).toContain("application/openmetrics-text");
    expect(text).toContain("# TYPE sluice_bucket_slots counter");
    expect(valueOf(text, SLOTS, { bucket: "api", outcome: "granted" })).toBe(1);
    expect(text.endsWith("# EOF\n")).toBe(true);
  });

  it.each(Object.keys(PROCESS_METRICS))(
    "is unchanged if it has another metric %s, and the error says so",
    async (name) => {
      const sluice = sluices.open();
      const register = new Registry();
      const theirs = new Counter({ name, help: "Theirs.", registers: [register] });

      const error = await rejectionOf(sluice.metrics({ register }));

      expect(error).toMatchObject({ code: "ERR_INVALID_OPTION", option: "register" });
      expect((error as Error).message).toContain(name);
      expect(register.getMetricsAsArray()).toEqual([theirs]);
    },
  );

  it.each([{ register: {} }, { register: 7 }, { register: null }, { registry: new Registry() }])(
    "is refused if it is not a register: %j",
    async (given) => {
      const sluice = sluices.open();

      expect(await rejectionOf(sluice.metrics(given as object))).toMatchObject({
        code: "ERR_INVALID_OPTION",
      });
    },
  );

  it("has a limited number of names, however many buckets there are", async () => {
    await using sluice = createSluice({ redis: "memory" });
    const metrics = await sluice.metrics();

    await Promise.all(
      Array.from({ length: 1_200 }, (_, at) => sluice.bucket(`b${at}`, { rate: "100/s" }).draw()),
    );

    const text = await metrics.text();
    const names = linesOf(text, `${WAIT}_count`);
    expect(names).toHaveLength(1_001);
    expect(valueOf(text, SLOTS, { bucket: "other", outcome: "granted" })).toBe(200);
  });
});
