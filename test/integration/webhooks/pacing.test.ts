import { describe, expect, it } from "vitest";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { openHooks, put, startReceiver, untilIdle } from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const REF = { tenant: "acme", id: "a" };
const EVENT = { tenant: "acme", type: "note.made", data: 1 };

describe("the pace of an endpoint", () => {
  it("is its own, and kept by retries and tests too", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 1, 1], breaker: { failures: 1_000 } });
    let count = 0;
    const receiver = await startReceiver({ answer: () => (count++ % 3 === 0 ? 500 : undefined) });
    await put(hooks, { ...REF, url: receiver.url, rate: "20/s" });
    hooks.worker();

    for (let at = 0; at < 20; at++) {
      await hooks.send({ ...EVENT, data: at });
      if (at % 5 === 0) await hooks.test(REF);
    }
    await untilIdle(hooks);

    expect(receiver.arrivals.length).toBeGreaterThanOrEqual(30);
    expect(receiver.worst(1_000)).toBeLessThanOrEqual(21);
  });

  it("is changed while messages wait for it", async () => {
    const hooks = openHooks(sluices);
    const receiver = await startReceiver();
    await put(hooks, { ...REF, url: receiver.url, rate: "1/h" });
    hooks.worker();
    for (let at = 0; at < 10; at++) await hooks.send(EVENT);
    await waitUntil(() => receiver.arrivals.length === 1, "the first has arrived");

    await put(hooks, { ...REF, url: receiver.url, rate: "1000/s" });

    await waitUntil(() => receiver.arrivals.length >= 10, "all have arrived");
    expect(receiver.arrivals).toHaveLength(10);
  });

  it("lets first attempts go before retries and tests", async () => {
    const hooks = openHooks(sluices, { scheduleMs: [0, 400] });
    let isWell = false;
    const receiver = await startReceiver({ answer: () => (isWell ? undefined : 500) });
    await put(hooks, { ...REF, url: receiver.url, concurrency: 1 });
    const worker = hooks.worker();
    for (let at = 0; at < 3; at++) await hooks.send({ ...EVENT, id: `old-${at}` });
    await waitUntil(() => receiver.arrivals.length >= 3, "three have failed");
    await worker.close();
    const closedMs = performance.now();
    await waitUntil(() => performance.now() > closedMs + 500, "their retries are due");
    isWell = true;
    const before = receiver.arrivals.length;
    await hooks.test(REF);
    for (let at = 0; at < 20; at++) await hooks.send({ ...EVENT, id: `new-${at}` });

    hooks.worker();
    await untilIdle(hooks);

    const ids = receiver.arrivals.slice(before).map(({ headers }) => String(headers["webhook-id"]));
    expect(ids).toHaveLength(24);
    // They were there first, so without a priority they would lead. A job that its worker gave back may come a little late.
    const early = ids.slice(0, 10).filter((id) => !id.startsWith("new-"));
    expect(early.length).toBeLessThanOrEqual(2);
  });
});

describe("the operator", () => {
  it("is told by webhooks what happens to endpoints", async () => {
    const hooks = openHooks(sluices, { operator: "ops" });
    const gone = await startReceiver({ answer: () => 410 });
    const operator = await startReceiver();
    await put(hooks, { ...REF, url: gone.url });
    await put(hooks, { tenant: "ops", id: "a", url: operator.url, types: ["endpoint.*"] });
    hooks.worker();

    await hooks.send(EVENT);

    await waitUntil(() => operator.arrivals.length === 1, "the operator is told");
    expect(JSON.parse(operator.arrivals[0]!.body)).toMatchObject({
      type: "endpoint.disabled",
      data: { tenant: "acme", endpoint: "a", why: "gone" },
    });
  });
});
