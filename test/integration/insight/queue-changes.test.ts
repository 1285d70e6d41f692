import { describe, expect, it } from "vitest";
import { CannotUndoError, type QueueChange, type Sluice } from "sluice";
import { createWebhooks } from "sluice/webhooks";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const KEYS = `k1:${Buffer.alloc(32, 7).toString("base64")}`;

function openQueue() {
  const sluice = sluices.open({ logger: { warn() {}, error() {} } });
  const queue = sluice.queue<number>("charges", {
    bucket: sluice.bucket("stripe", { rate: "1/h" }),
  });
  return { sluice, queue };
}

function openSender() {
  const sluice = sluices.open();
  return { sluice, hooks: createWebhooks(sluice, { keys: KEYS }) };
}

const of = (sluice: Sluice, queue: string): Promise<readonly QueueChange[]> =>
  sluice.changes({ queue });

describe("the log of changes", () => {
  it("shows who paused a queue, why and for how long, and the state before", async () => {
    const { sluice, queue } = openQueue();

    await queue.pause({ key: "acme", forMs: 60_000, by: "ann", reason: "429s" });
    await queue.resume({ key: "acme" });

    const [resume, pause] = await of(sluice, "charges");
    expect(pause).toMatchObject({
      queue: "charges",
      action: "pause",
      key: "acme",
      by: "ann",
      reason: "429s",
      forMs: 60_000,
      before: { pausedForMs: 0 },
      after: { pausedForMs: 60_000 },
    });
    expect(resume).toMatchObject({ action: "resume", after: { pausedForMs: 0 } });
    expect(resume!.by).toMatch(/:\d+$/);
    expect(resume!.before!["pausedForMs"]).toBeGreaterThan(0);
    await queue.pause();
    const [endless] = await of(sluice, "charges");
    expect(JSON.parse(JSON.stringify(endless))).toMatchObject({
      after: { pausedForMs: "forever" },
    });
  });

  it("shows how many jobs a change affected, and the numbers before and after", async () => {
    const { sluice, queue } = openQueue();
    await queue.enqueueMany([1, 2, 3], { key: "acme" });
    await queue.enqueueMany([4, 5], { key: "beta", delayMs: 3_600_000 });

    await queue.rescheduleJobs({ key: "beta" }, { delayMs: 7_200_000 }, { by: "ann" });
    await queue.removeJobs({ key: "acme", limit: 1 }, { by: "ann", reason: "twice" });
    await queue.drain({ by: "bob" });
    await queue.purge({ reason: /declined/i }, { by: "cem" });

    const [purge, drain, remove, reschedule] = await of(sluice, "charges");
    expect(reschedule).toMatchObject({
      action: "reschedule",
      jobs: 2,
      filter: { delayMs: 7_200_000 },
    });
    expect(remove).toMatchObject({
      action: "remove",
      key: "acme",
      filter: { limit: 1 },
      jobs: 1,
      reason: "twice",
      before: { waiting: 3, delayed: 2 },
      after: { waiting: 2, delayed: 2 },
    });
    expect(drain).toMatchObject({ action: "drain", jobs: 4, after: { waiting: 0, delayed: 0 } });
    expect(purge).toMatchObject({ action: "purge", jobs: 0, filter: { reason: "/declined/i" } });
  });

  it("omits changes of single jobs by an application, unless they have an author", async () => {
    const { sluice, queue } = openQueue();
    const { id } = await queue.enqueue(1, { attempts: 1 });
    const worker = sluice.worker(queue, async () => {
      throw new Error("declined");
    });
    await waitUntil(async () => (await queue.counts()).failed === 1, "it has failed");
    await worker.close();

    await queue.replay(id);
    await queue.reprioritise(id, "high");
    await queue.cancel(id);
    await queue.purge(id, { by: "ann" });

    const changes = await of(sluice, "charges");
    expect(changes.map(({ action, by, filter }) => [action, by, filter])).toEqual([
      ["purge", "ann", { id }],
    ]);
  });

  it("has changes of buckets and of queues in the order in which they were made, by pages", async () => {
    const { sluice, queue } = openQueue();
    await queue.bucket.pause({ by: "1" });
    await queue.pause({ by: "2" });
    await queue.bucket.resume({ by: "3" });
    await queue.resume({ by: "4" });

    const first = await sluice.changes({ limit: 3 });
    const rest = await sluice.changes({ limit: 3, before: first.at(-1)!.id });

    // Two of the same ms may stand in another order, but none is lost or comes twice.
    expect([...first, ...rest].map(({ by }) => by).toSorted()).toEqual(["1", "2", "3", "4"]);
    expect(await sluice.changes({ bucket: "stripe" })).toHaveLength(2);
    expect(await rejectionOf(sluice.changes({ bucket: "a", queue: "b" } as object))).toMatchObject({
      code: "ERR_INVALID_OPTION",
      option: "queue",
    });
  });
});

describe("a change of a queue", () => {
  it("that paused or resumed it is undone, each to the rest of the earlier pause", async () => {
    const { sluice, queue } = openQueue();
    await queue.pause({ forMs: 600_000, by: "ann" });
    await queue.resume({ by: "bob" });

    expect(await queue.undo({ by: "cem" })).toMatchObject({ action: "resume", by: "bob" });
    const [again] = await queue.paused();
    expect(again!.forMs).toBeGreaterThan(500_000);
    expect(again!.forMs).toBeLessThanOrEqual(600_000);
    expect(await queue.undo()).toMatchObject({ action: "pause", by: "ann" });
    expect(await queue.paused()).toEqual([]);
    expect(await queue.undo()).toBeUndefined();

    const changes = await of(sluice, "charges");
    expect(changes.map(({ action, undoneBy }) => [action, undoneBy !== undefined])).toEqual([
      ["undo", false],
      ["undo", false],
      ["resume", true],
      ["pause", true],
    ]);
    expect(changes[2]!.undoneBy).toBe(changes[1]!.id);
  });

  it("that cannot be undone is refused with the reason, and nothing is changed", async () => {
    const { sluice, queue } = openQueue();
    await queue.enqueue(1);
    await queue.pause({ key: "acme" });
    await queue.pause({ key: "acme", forMs: 60_000 });
    await queue.drain();
    const [drain, later, earlier] = await of(sluice, "charges");

    for (const [given, why] of [
      [{}, /the jobs are gone/],
      [{ id: drain!.id }, /the jobs are gone/],
      [{ id: earlier!.id }, new RegExp(`${later!.id} came after it`)],
      [{ id: "5-5" }, /no such change/],
    ] as const) {
      const error = await rejectionOf(queue.undo(given));
      expect(error).toBeInstanceOf(CannotUndoError);
      expect(error).toMatchObject({ code: "ERR_CANNOT_UNDO", reason: expect.stringMatching(why) });
    }

    expect(await queue.paused()).toMatchObject([{ key: "acme" }]);
    await queue.undo({ id: later!.id });
    expect(await rejectionOf(queue.undo({ id: later!.id }))).toMatchObject({
      why: expect.stringContaining("taken back before"),
    });
  });
});

describe("a change of an endpoint", () => {
  const URL = "https://acme.example/hooks?token=hidden";

  it("is logged without a secret", async () => {
    const { sluice, hooks } = openSender();
    const ref = { tenant: "acme", id: "billing" };
    const headers = { "x-key": "hidden" };

    const { secret } = await hooks.endpoints.put({ ...ref, url: URL, headers }, { by: "ann" });
    await hooks.endpoints.put({ ...ref, url: URL, rate: "5/s", filter: { amount: { gt: 5 } } });
    const rotated = await hooks.endpoints.rotateSecret(ref, { by: "bob", reason: "it leaked" });
    await hooks.tenants.setLimits({ tenant: "acme", rate: "9/s" }, { by: "cem" });
    await hooks.endpoints.remove(ref, { by: "dee" });

    const changes = await of(sluice, "webhooks");
    const [remove, limits, rotate, put, added] = changes;
    expect(added).toMatchObject({ action: "put", by: "ann", endpoint: ref, before: undefined });
    expect(added!.after).toMatchObject({ url: "https://acme.example/…", headers: "x-key" });
    expect(put!.after).toMatchObject({ rate: "5/s", changed: "headers, filter, rate" });
    expect(rotate).toMatchObject({
      reason: "it leaked",
      before: { secrets: 1 },
      after: { secrets: 2 },
    });
    expect(limits).toMatchObject({
      endpoint: { tenant: "acme" },
      before: {},
      after: { rate: "9/s" },
    });
    expect(remove).toMatchObject({ by: "dee", before: { rate: "5/s" }, after: undefined });
    for (const hidden of ["hidden", secret!, rotated, secret!.slice(6), rotated.slice(6)]) {
      expect(JSON.stringify(changes)).not.toContain(hidden);
    }
  });

  it("that disabled or enabled it is undone; others are refused with the reason", async () => {
    const { sluice, hooks } = openSender();
    const ref = { tenant: "acme", id: "billing" };
    const disabled = async () => (await hooks.endpoints.get(ref))!.disabled?.reason;
    await hooks.endpoints.put({ ...ref, url: URL });
    await hooks.endpoints.disable(ref, { by: "ann", reason: "asked by phone" });
    expect(await disabled()).toBe("asked by phone");
    await hooks.endpoints.enable(ref, { by: "bob" });

    expect(await hooks.endpoints.undo({ by: "cem" })).toMatchObject({ action: "enable" });
    expect(await disabled()).toBe("asked by phone");
    expect(await hooks.endpoints.undo()).toMatchObject({ action: "disable", by: "ann" });
    expect(await disabled()).toBeUndefined();
    expect(await rejectionOf(hooks.endpoints.undo())).toMatchObject({
      code: "ERR_CANNOT_UNDO",
      why: expect.stringContaining("put it again"),
    });
    // A sender's queue has a log of its own, though the name is the same.
    expect(await hooks.queue.undo()).toBeUndefined();
    expect(await of(sluice, "webhooks")).toHaveLength(5);
  });
});
