import { describe, expect, it } from "vitest";
import { ChangedError, InvalidOptionError, type Bucket } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();

/** What a change says that does not depend on when it was made. */
async function changesOf(bucket: Bucket, sluice = sluices.open()) {
  return sluice.changes({ bucket: bucket.name });
}

describe.each(["in Redis", "in memory"])("changes by operators, %s", (where) => {
  const open = () => sluices.open(where === "in memory" ? { redis: "memory" } : {});

  it("show who made them, why, and the state before", async () => {
    const sluice = open();
    const bucket = sluice.bucket("api", { rate: "100/s" });
    await bucket.draw();

    await bucket.configure({ rate: "20/s" }, { by: "ann", reason: "the provider asked" });
    await bucket.pause({ by: "bob", forMs: 60_000 });
    await bucket.resume({ by: "cem" });

    const changes = await sluice.changes();
    expect(changes.map(({ action, by, reason }) => [action, by, reason])).toEqual([
      ["resume", "cem", undefined],
      ["pause", "bob", undefined],
      ["configure", "ann", "the provider asked"],
    ]);
    const [, pause, configure] = changes;
    expect(configure).toMatchObject({
      bucket: "api",
      before: { policy: "100/s", source: "code", pausedForMs: 0 },
      after: { policy: "20/s", source: "override", pausedForMs: 0 },
    });
    expect(pause).toMatchObject({ forMs: 60_000, after: { policy: "20/s", pausedForMs: 60_000 } });
  });

  it("show in the status who made the current change", async () => {
    const bucket = open().bucket("api", { rate: "100/s" });
    await bucket.draw();
    expect(await bucket.status()).toMatchObject({ source: "code", capPerSecond: 100 });

    await bucket.configure({ rate: "20/s" }, { by: "ann", reason: "slow", forMs: 60_000 });
    await bucket.pause({ by: "bob" });

    const { setBy, pausedBy, ...status } = await bucket.status();
    expect(status).toMatchObject({ source: "override", capPerSecond: 20, pausedForMs: Infinity });
    expect(setBy).toMatchObject({ by: "ann", reason: "slow" });
    expect(setBy!.endsInMs).toBeGreaterThan(50_000);
    expect(pausedBy).toMatchObject({ by: "bob", reason: undefined, endsInMs: Infinity });
    expect(JSON.parse(JSON.stringify(pausedBy))).toMatchObject({ endsInMs: "forever" });
  });

  it("are undone one after the other, the last first", async () => {
    const sluice = open();
    const bucket = sluice.bucket("api", { rate: "100/s" });
    await bucket.configure({ rate: "20/s" });
    await bucket.configure({ rate: "30/s" });
    await bucket.pause();

    expect(await bucket.undo({ by: "ann" })).toMatchObject({ action: "pause" });
    expect(await bucket.peek()).toMatchObject({ policy: "30/s", pausedForMs: 0 });
    expect(await bucket.undo()).toMatchObject({ action: "configure", after: { policy: "30/s" } });
    expect(await bucket.peek()).toMatchObject({ policy: "20/s", policyFrom: "configured" });
    expect(await bucket.undo()).toMatchObject({ before: { source: "code" } });
    expect(await bucket.peek()).toMatchObject({ policy: "100/s", policyFrom: "code" });
    expect(await bucket.undo()).toBeUndefined();

    const [newest] = await changesOf(bucket, sluice);
    expect(newest).toMatchObject({ action: "undo", after: { policy: "100/s", source: "code" } });
  });

  it("of a pause with an end return to the rest of the earlier pause", async () => {
    const bucket = open().bucket("api", { rate: "100/s" });
    await bucket.pause({ forMs: 60_000 });
    await bucket.resume();

    await bucket.undo();

    const { pausedForMs } = await bucket.peek();
    expect(pausedForMs).toBeGreaterThan(30_000);
    expect(pausedForMs).toBeLessThanOrEqual(60_000);
  });

  it("of one key do not change the bucket", async () => {
    const sluice = open();
    const bucket = sluice.bucket("api", { rate: "100/s", perKey: { rate: "10/s" } });
    await bucket.pause({ key: "acme", by: "ann" });

    expect((await bucket.peek()).pausedForMs).toBe(0);
    expect((await bucket.peek({ key: "acme" })).pausedForMs).toBe(Infinity);
    const [change] = await changesOf(bucket, sluice);
    expect(change).toMatchObject({ key: "acme", action: "pause", before: { pausedForMs: 0 } });
    await bucket.undo();
    expect((await bucket.peek({ key: "acme" })).pausedForMs).toBe(0);
  });

  it("are refused when another change was made after the read", async () => {
    const sluice = open();
    const bucket = sluice.bucket("api", { rate: "100/s" });
    await bucket.draw();
    const { generation } = await bucket.peek();
    await bucket.configure({ rate: "20/s" }, { generation });

    for (const change of [
      () => bucket.configure({ rate: "30/s" }, { generation }),
      () => bucket.configure("code", { generation }),
      () => bucket.pause({ generation }),
      () => bucket.resume({ generation }),
      () => bucket.undo({ generation }),
    ]) {
      const error = await rejectionOf(change());
      expect(error).toBeInstanceOf(ChangedError);
      expect(error).toMatchObject({ code: "ERR_CHANGED", bucket: "api", since: generation });
    }

    expect(await bucket.peek()).toMatchObject({ policy: "20/s", pausedForMs: 0 });
    const [refused] = await changesOf(bucket, sluice);
    expect(refused!.failed).toMatch(/has changed since/);
  });

  it("undo only the named change", async () => {
    const sluice = open();
    const bucket = sluice.bucket("api", { rate: "100/s" });
    await bucket.configure({ rate: "20/s" });
    const [first] = await changesOf(bucket, sluice);
    await bucket.configure({ rate: "30/s" });

    expect(await rejectionOf(bucket.undo({ id: first!.id }))).toBeInstanceOf(ChangedError);
    expect(await bucket.peek()).toMatchObject({ policy: "30/s" });
  });

  it.each([
    ["by", { by: "" }],
    ["by", { by: 7 }],
    ["reason", { reason: "x".repeat(501) }],
    ["generation", { generation: 0 }],
    ["generation", { generation: 1.5 }],
    ["forMs", { forMs: 0 }],
    ["forMs", { forMs: Number.NaN }],
    ["formMs", { formMs: 5 }],
  ])("refuse a wrong %s of configure()", async (option, options) => {
    const sluice = open();
    const bucket = sluice.bucket("api", { rate: "100/s" });

    const error = await rejectionOf(bucket.configure({ rate: "20/s" }, options as object));

    expect(error).toBeInstanceOf(InvalidOptionError);
    expect(error).toMatchObject({ option });
    expect(await sluice.changes()).toEqual([]);
  });

  it("cannot give the code's policy an end", async () => {
    const bucket = open().bucket("api", { rate: "100/s" });

    const error = await rejectionOf(bucket.configure("code", { forMs: 1_000 }));

    expect(error).toMatchObject({ code: "ERR_INVALID_OPTION", option: "forMs" });
  });

  it("come in pages", async () => {
    const sluice = open();
    const bucket = sluice.bucket("api", { rate: "100/s" });
    const other = sluice.bucket("other", { rate: "100/s" });
    for (const rate of ["1/s", "2/s", "3/s"]) await bucket.configure({ rate });
    await other.configure({ rate: "9/s" });

    const first = await sluice.changes({ bucket: "api", limit: 2 });
    const second = await sluice.changes({ bucket: "api", limit: 2, before: first[1]!.id });

    expect([...first, ...second].map(({ after }) => after.policy)).toEqual(["3/s", "2/s", "1/s"]);
    const error = await rejectionOf(sluice.changes({ before: "not an id" }));
    expect(error).toMatchObject({ option: "before" });
  });
});

describe("a policy that was set with an end", () => {
  it("ends by itself in all processes, also if its author's process is gone", async () => {
    const giver = sluices.open();
    const here = sluices.open();
    const bucket = here.bucket("api", { rate: "1000/s" });
    await bucket.draw();
    await giver
      .bucket("api", { rate: "1000/s" })
      .configure({ rate: "500/s" }, { forMs: 200, by: "ann" });
    expect(await bucket.peek()).toMatchObject({ policy: "500/s" });
    await giver.close();

    await waitUntil(async () => {
      await bucket.draw();
      return (await bucket.peek()).policyFrom === "code";
    }, "the policy of the code is in force again");

    const [expired, configured] = await changesOf(bucket, here);
    expect(expired).toMatchObject({
      action: "expire",
      after: { policy: "1000/s", source: "code" },
    });
    expect(configured).toMatchObject({ by: "ann", forMs: 200, undoneBy: expired!.id });
    expect((await bucket.status()).setBy).toBeUndefined();
  });

  it("does not end a later policy", async () => {
    const here = sluices.open();
    const bucket = here.bucket("api", { rate: "1000/s" });
    await bucket.draw();
    await bucket.configure({ rate: "500/s" }, { forMs: 1 });
    await bucket.configure({ rate: "700/s" });
    const other = here.bucket("other", { rate: "1000/s" });
    await other.configure({ rate: "500/s" }, { forMs: 1 });

    await waitUntil(async () => {
      await Promise.all([bucket.draw(), other.draw()]);
      return (await other.peek()).policyFrom === "code";
    }, "the other bucket's time is over");

    expect(await bucket.peek()).toMatchObject({ policy: "700/s", policyFrom: "configured" });
  });

  it("ends also where only processes are left that do not have its bucket", async () => {
    const giver = sluices.open();
    const bucket = giver.bucket("api", { rate: "1000/s" });
    await bucket.draw();
    await waitUntil(async () => (await giver.overview()).buckets.length === 1, "it is told of");
    await bucket.configure({ rate: "500/s" }, { forMs: 100 });
    await giver.close();
    const other = sluices.open();
    const busy = other.bucket("busy", { rate: "1000/s" });

    await waitUntil(async () => {
      await busy.draw();
      return (await (await other.find("api"))?.peek())?.policyFrom === "code";
    }, "the policy of the code is in force again");

    const [expired, ...others] = await other.changes({ bucket: "api" });
    expect(expired).toMatchObject({ action: "expire" });
    expect(others).toHaveLength(1);
  });
});
