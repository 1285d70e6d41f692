import { Registry } from "prom-client";
import { expect, it } from "vitest";
import { budget, createSluice, leakyBucket } from "sluice";
import { FLEET_METRICS, fleetMetrics } from "sluice/metrics";
import { linesOf, valueOf } from "../../support/metrics/exposition.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();

it("one process exports the metrics of all, whichever declares the buckets", async () => {
  const [a, b, operator] = [sluices.open(), sluices.open(), sluices.open()];
  const api = a.bucket("api", { rate: "100/s" });
  await api.draw();
  await b.bucket("mail", { limits: [leakyBucket("50/s")] }).draw();
  await api.configure({ rate: "20/s" }, { by: "ann" });
  await api.pause();
  const waiting = [api.draw({ priority: "low" }), api.draw(), api.draw()];
  const fleet = fleetMetrics(operator, { everyMs: 1_000 });

  await waitUntil(async () => {
    const exported = await fleet.text();
    const ofApi = { bucket: "api" };
    const waits = valueOf(exported, "sluice_bucket_waiting", { ...ofApi, priority: "normal" });
    // For what they wait, they hear a moment later.
    return (
      waits === 2 &&
      valueOf(exported, "sluice_bucket_binding", { ...ofApi, limit: "a pause" }) === 1
    );
  }, "it is told who waits, and for what");
  const text = await fleet.text();

  const limit = "sluice_bucket_limit_per_second";
  expect(valueOf(text, limit, { bucket: "api", limit: "20/s", source: "override" })).toBe(20);
  expect(valueOf(text, limit, { bucket: "mail", limit: "50/s", source: "code" })).toBe(50);
  expect(linesOf(text, limit)).toHaveLength(2);
  expect(valueOf(text, "sluice_bucket_waiting", { bucket: "api", priority: "low" })).toBe(1);
  expect(valueOf(text, "sluice_bucket_waiting", { bucket: "mail", priority: "low" })).toBe(0);
  expect(valueOf(text, "sluice_bucket_used_ratio", { bucket: "mail" })).toBeGreaterThanOrEqual(0);
  expect(valueOf(text, "sluice_bucket_cooldown_seconds", { bucket: "api" })).toBe(0);
  const { generation } = await api.peek();
  const info = { bucket: "api", generation: String(generation), source: "override" };
  expect(valueOf(text, "sluice_config_info", info)).toBe(1);
  await api.resume();
  await Promise.all(waiting);
});

it("exports balances of shared budgets, and the state of pool members", async () => {
  const [sluice, operator] = [sluices.open(), sluices.open()];
  const usd = budget({ unit: "usd", amount: 10, per: "year" });
  const llm = sluice.bucket("llm", { limits: [usd], perKey: { limits: [usd] } });
  await llm.draw({ key: "acme", cost: { usd: 2 } });
  let end = (): void => {};
  const ended = new Promise<void>((resolve) => (end = resolve));
  const running = llm.run(() => ended, { cost: { usd: 1 }, settle: () => ({ usd: 0 }) });
  await llm.grant({ usd: 5 }, { reason: "demo day" });
  const pool = sluice.pool("gpt", {
    members: {
      east: { limits: [leakyBucket("1/h", { burst: 4 })] },
      west: { rate: "1/h" },
      south: { rate: "1/h" },
    },
    prefer: ["east", "west", "south"],
  });
  await pool.draw();
  await pool.drainMember("west");
  await pool.member("south").run(() => ({ status: 429, headers: { "retry-after": "600" } }));
  const fleet = fleetMetrics(operator, { everyMs: 1_000 });
  await waitUntil(async () => {
    const exported = await fleet.text();
    return exported.includes("sluice_budget_reserved{") && exported.includes('state="cooling"');
  }, "the budget and the pool are exported");
  const text = await fleet.text();

  const ofBudget = (name: string) =>
    valueOf(text, `sluice_budget_${name}`, { bucket: "llm", limit: "10/year usd" });
  expect(["amount", "spent", "reserved", "granted"].map(ofBudget)).toEqual([15, 3, 1, 5]);
  expect(ofBudget("reset_seconds")).toBeGreaterThan(0);
  // Keys are in no label, so only the budget of the bucket is exported.
  expect(linesOf(text, "sluice_budget_amount")).toHaveLength(1);
  const member = (name: string, labels: object) =>
    valueOf(text, `sluice_pool_member_${name}`, { bucket: "gpt", ...labels });
  expect(member("state", { member: "east", state: "open" })).toBe(1);
  expect(member("state", { member: "west", state: "drained" })).toBe(1);
  expect(member("state", { member: "south", state: "cooling" })).toBe(1);
  expect(member("room_ratio", { member: "east" })).toBe(0.75);
  expect(member("room_ratio", { member: "south" })).toBe(0);
  end();
  await running;
});

it("counts rejections whose cooldowns end before a scrape, and the time of an override", async () => {
  const sluice = sluices.open();
  const bucket = sluice.bucket("api", { rate: "100/s" });
  await bucket.configure({ rate: "50/s" }, { by: "ann" });
  for (let call = 0; call < 3; call++) {
    await bucket.run(() => ({ status: 429, headers: { "retry-after-ms": "1" } }));
  }
  const fleet = fleetMetrics(sluice, { everyMs: 1_000 });
  const refusals = async () =>
    valueOf(await fleet.text(), "sluice_bucket_refusals_total", { bucket: "api" });

  await waitUntil(async () => (await refusals()) === 3, "all are counted");
  const text = await fleet.text();
  const overrideS = valueOf(text, "sluice_bucket_override_seconds", { bucket: "api" });
  await bucket.configure("code");

  expect(overrideS).toBeGreaterThanOrEqual(0);
  expect((await bucket.status()).refusals).toBe(3);
  await waitUntil(
    async () => linesOf(await fleet.text(), "sluice_bucket_override_seconds").length === 0,
    "it has ended",
  );
});

it("reports a cooldown and its length", async () => {
  const sluice = sluices.open();
  const bucket = sluice.bucket("api", { rate: "100/s" });
  await bucket.run(() => ({ status: 429, headers: { "retry-after": "600" } }));
  const fleet = fleetMetrics(sluice, { everyMs: 1_000 });

  await waitUntil(async () => {
    const text = await fleet.text();
    return valueOf(text, "sluice_bucket_cooldown_seconds", { bucket: "api" }) > 500;
  }, "the cooldown is exported");

  const text = await fleet.text();
  expect(valueOf(text, "sluice_bucket_cooldown_seconds", { bucket: "api" })).toBeLessThan(601);
});

it("shares a register with the metrics of its process, and leaves it when closed", async () => {
  const sluice = sluices.open();
  const own = await sluice.metrics();
  const fleet = fleetMetrics(sluice, { register: own.register });
  await sluice.bucket("api", { rate: "100/s" }).draw();
  await waitUntil(
    async () => (await own.text()).includes('sluice_bucket_waiting{bucket="api"'),
    "the fleet is exported",
  );

  expect(fleetMetrics(sluice, { register: own.register })).toBe(fleet);
  fleet.close();

  const text = await own.text();
  for (const name of Object.keys(FLEET_METRICS)) expect(text).not.toContain(name);
  expect(text).toContain("sluice_bucket_slots_total");
  expect(fleetMetrics(sluice, { register: own.register })).not.toBe(fleet);
});

it("refuses a register with another sluice's fleet, and a value that is not a sluice", () => {
  const [a, b] = [sluices.open(), sluices.open()];
  const register = new Registry();
  fleetMetrics(a, { register });

  const refused = [
    () => fleetMetrics(b, { register }),
    () => fleetMetrics({} as never),
    () => fleetMetrics(a, { register: {} as never }),
    () => fleetMetrics(a, { everyMs: 5 }),
    () => fleetMetrics(a, { every: 5 } as never),
  ];

  for (const call of refused) {
    expect(call).toThrow(expect.objectContaining({ code: "ERR_INVALID_OPTION" }));
  }
});

it("exports nothing of the fleet while Redis is unreachable, and logs the reason", async () => {
  const warnings: string[] = [];
  const logger = { warn: (_facts: object, text: string) => void warnings.push(text), error() {} };
  await using sluice = createSluice({
    redis: "redis://127.0.0.1:1",
    storeTimeoutMs: 100,
    logger,
  });
  const own = await sluice.metrics();
  fleetMetrics(sluice, { register: own.register });

  const text = await own.text();

  expect(linesOf(text, "sluice_bucket_waiting")).toEqual([]);
  const asked = { command: "bucket_names" };
  const later = await own.text();
  expect(valueOf(later, "sluice_store_duration_seconds_count", asked)).toBeGreaterThan(0);
  expect(warnings.join("\n")).toContain("The metrics of the fleet could not be read: ");
});

it("has a limited number of names: those with the most pending calls", async () => {
  await using sluice = createSluice({ redis: "memory" });
  const open = (name: string) => sluice.bucket(name, { rate: "1000/s" });
  await Promise.all(Array.from({ length: 1_005 }, (_, at) => open(`a${at}`).draw()));
  await open("z").pause();
  const waiting = [open("z").draw().catch(String)];
  const fleet = fleetMetrics(sluice, { everyMs: 1_000 });

  await waitUntil(async () => {
    const text = await fleet.text();
    return valueOf(text, "sluice_bucket_waiting", { bucket: "z", priority: "normal" }) === 1;
  }, "the one that waits is there");

  const text = await fleet.text();
  expect(linesOf(text, "sluice_bucket_limit_per_second")).toHaveLength(1_000);
  expect(linesOf(text, "sluice_bucket_waiting")).toHaveLength(4_004);
  expect(valueOf(text, "sluice_bucket_waiting", { bucket: "other", priority: "normal" })).toBe(0);
  await sluice.close();
  await Promise.all(waiting);
});
