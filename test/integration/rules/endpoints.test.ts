import { expect, inject, it, vi } from "vitest";
import { budget, type Bucket } from "sluice";
import { createWebhooks, findWebhooks } from "sluice/webhooks";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { heardLog, rulesFiles } from "../../support/rules/rules-files.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { KEYS, LOCAL, openHooks, put, startReceiver } from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const files = rulesFiles();
const processes = scriptProcesses();
const REF = { tenant: "acme", id: "a" };

it("apply in a worker of another process to queued messages, and a broken file changes nothing", async () => {
  const write = (text: string): string => files.write("sluice.yaml", `buckets: {}\n${text}`);
  const file = write("version: 1\nendpoints: { webhooks: { perEndpoint: { rate: 1/h } } }");
  const { logger, lines } = heardLog();
  const sluice = sluices.open({ rules: file, logger });
  const hooks = createWebhooks(sluice, LOCAL);
  const rate = async (): Promise<string> => {
    const found = (await hooks.status(REF))?.limits.find(({ name }) => name === "rate");
    return `${found?.value} by ${found?.setBy}`;
  };
  const receiver = await startReceiver();
  await put(hooks, { ...REF, url: receiver.url });
  await waitUntil(async () => (await rate()) === "1/h by rules", "the first rules");
  processes.start("test/support/processes/webhook-worker.ts", {
    env: {
      REDIS_URL: inject("redisUrl"),
      SLUICE_PREFIX: sluices.prefix(),
      SLUICE_WEBHOOK_KEYS: KEYS,
    },
  });
  for (let data = 0; data < 5; data++)
    await hooks.send({ tenant: "acme", type: "note.made", data });
  await waitUntil(() => receiver.arrivals.length > 0, "the first has arrived");

  lines.length = 0;
  write(
    "version: 2\nendpoints:\n  webhooks: { perEndpoint: { rate: 2/s }, perTenat: { rate: 1/s } }",
  );
  await waitUntil(async () => lines.length === 1, "the log says that the file is broken");
  expect(lines[0]).toMatch(
    /:4:43: option "endpoints\.webhooks\.perTenat" .* did you mean perTenant\?$/,
  );
  expect(await rate()).toBe("1/h by rules");
  expect(receiver.arrivals).toHaveLength(1);

  write(
    "version: 3\nendpoints: { webhooks: { tenants: { acme: { endpoints: { a: { rate: 1000/s } } } } } }",
  );
  await waitUntil(() => receiver.arrivals.length === 5, "all have arrived");
  expect(await rate()).toBe("1000/s by rules");
  write("version: 4");
  await waitUntil(async () => (await rate()) === "undefined by undefined", "the code's again");
});

it("apply from all to tenant to endpoint; an endpoint's own limits override them within the ceiling", async () => {
  const rules = files.write(
    "sluice.yaml",
    `version: 7
buckets: {}
endpoints:
  webhooks:
    perTenant: { rate: 50/s, concurrency: 20 }
    perEndpoint: { rate: 5/s, concurrency: 4 }
    ceiling: { concurrency: 3 }
    tenants:
      acme: { rate: 100/s, endpoints: { a: { rate: 20/s } } }
      globex: { perEndpoint: { rate: 9/s }, ceiling: { concurrency: 8 } }`,
  );
  const hooks = openHooks(sluices, { perEndpoint: { concurrency: 10 } });
  await put(hooks, { ...REF, url: "http://127.0.0.1:1/", concurrency: 9 });
  await put(hooks, { tenant: "globex", id: "b", url: "http://127.0.0.1:1/", concurrency: 9 });
  await hooks.tenants.setLimits({ tenant: "globex", rate: "1/min" });
  const limitsOf = async (tenant: string, id: string): Promise<string | undefined> =>
    (await hooks.status({ tenant, id }))?.limits
      .map(({ name, value, setBy }) => `${name} ${value} ${setBy}`)
      .join(", ");
  expect(await limitsOf("acme", "a")).toBe("concurrency 9 own");
  sluices.open({ rules });

  const ofAcme = "tenant.rate 100/s rules, tenant.concurrency 20 rules, rate 20/s rules";
  await waitUntil(
    async () => (await limitsOf("acme", "a")) === `${ofAcme}, concurrency 3 own`,
    "the rules are in force",
  );
  expect(await limitsOf("globex", "b")).toBe(
    "tenant.rate 1/min own, tenant.concurrency 20 rules, rate 9/s rules, concurrency 8 own",
  );
  // What calls draw is the same.
  hooks.worker();
  await waitUntil(async () => {
    const { limits } = await hooks.queue.bucket.peek({ key: ["acme", "a"] });
    const names = limits.map(({ name }) => name).join(", ");
    return ["100/s", "20 at once", "20/s", "3 at once"].every((name) => names.includes(name));
  }, "the worker has the limits");
  const found = await findWebhooks(sluices.open());
  expect((await found?.status(REF))?.limits).toEqual((await hooks.status(REF))?.limits);
  const isLogged = async (): Promise<boolean> => {
    const [change] = await sluices.open().changes({ queue: "webhooks" });
    return change?.action === "rules" && change.after?.["perEndpoint.rate"] === "5/s";
  };
  await waitUntil(isLogged, "the log has them");
});

it("wake waiting deliveries when they change", async () => {
  const write = (rate: string): string =>
    files.write("sluice.yaml", `buckets: {}\nendpoints: { webhooks: { perEndpoint: ${rate} } }`);
  const sluice = sluices.open({ rules: write("{ rate: 1/h }"), logger: heardLog().logger });
  const hooks = createWebhooks(sluice, LOCAL);
  const receiver = await startReceiver();
  await put(hooks, { ...REF, url: receiver.url });
  // By itself, what waits asks again after ten seconds, and would be sent late.
  const woken = vi.spyOn(hooks.queue.bucket as Bucket & { changed(): void }, "changed");
  await waitUntil(async () => {
    const found = (await hooks.status(REF))?.limits.find(({ name }) => name === "rate");
    return found?.setBy === "rules";
  }, "the first rules are in force");
  hooks.worker();
  for (let data = 0; data < 3; data++)
    await hooks.send({ tenant: "acme", type: "note.made", data });
  await waitUntil(() => receiver.arrivals.length === 1, "the others wait");
  const before = woken.mock.calls.length;

  write("{ rate: 1000/s }");

  await waitUntil(() => receiver.arrivals.length === 3, "all have arrived");
  expect(woken.mock.calls.length).toBeGreaterThan(before);
});

it("send the warnings of budgets that they name, from the sender's workers", async () => {
  const write = (text: string): string => files.write("sluice.yaml", `buckets: {}\n${text}`);
  const file = write("version: 1");
  const { logger, lines } = heardLog();
  const hooks = createWebhooks(sluices.open({ rules: file, logger }), LOCAL);
  const receiver = await startReceiver();
  await put(hooks, { tenant: "ops", id: "a", url: receiver.url });
  hooks.worker();
  const usd = budget({ unit: "usd", amount: 10, per: "year", warnAt: [0.5, 1] });
  // Another process, which knows no sender.
  const llm = sluices.open().bucket("llm", { limits: [usd] });
  await llm.draw({ cost: { usd: 6 } });

  write("version: 2\nendpoints: { webhooks: { budgetWarnings: { llm: { tenant: ops } } } }");

  await waitUntil(() => receiver.arrivals.length === 1, "the warning has arrived");
  expect(JSON.parse(receiver.arrivals[0]!.body)).toMatchObject({
    data: { bucket: "llm", part: 0.5 },
  });
  lines.length = 0;
  write("version: 3\nendpoints: { webhooks: { budgetWarnings: { llm: { tenat: ops } } } }");
  await waitUntil(() => lines.length > 0, "the log says that the file is broken");
  expect(lines[0]).toMatch(/budgetWarnings\.llm\.tenat" .* did you mean tenant\?$/);
  lines.length = 0;
  write("version: 4\nendpoints: { webhooks: { budgetWarnings: { llm: {} } } }");
  await waitUntil(() => lines.some((line) => /are not sent/.test(line)), "no tenant is named");
});
