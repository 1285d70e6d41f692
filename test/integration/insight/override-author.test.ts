import { describe, expect, it } from "vitest";
import { ChangedError, type Bucket } from "sluice";
import type { OwnedBucket } from "../../../src/throttle/bucket.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const MINUTE_MS = 60_000;

describe.each(["in Redis", "in memory"])("an override with an end, %s", (where) => {
  const open = () => sluices.open(where === "in memory" ? { redis: "memory" } : {});

  /** A bucket with a policy that ann gave it for a minute. */
  async function withOverride() {
    const sluice = open();
    const bucket = sluice.bucket("api", { rate: "1000/s" });
    await bucket.draw();
    await bucket.configure({ rate: "500/s" }, { by: "ann", forMs: MINUTE_MS });
    return { sluice, bucket };
  }

  async function expectAnnsToEnd(bucket: Bucket): Promise<void> {
    const { source, setBy } = await bucket.status();
    expect({ source, by: setBy?.by }).toEqual({ source: "override", by: "ann" });
    expect(setBy!.endsInMs).toBeLessThanOrEqual(MINUTE_MS);
    expect(setBy!.endsInMs).toBeGreaterThan(0);
  }

  it("keeps its end when a running bucket is resumed, or is paused once more", async () => {
    const { sluice, bucket } = await withOverride();

    await bucket.resume({ by: "bob" });
    await bucket.pause({ by: "bob" });
    await bucket.pause({ by: "cem" });

    await expectAnnsToEnd(bucket);
    expect((await bucket.status()).pausedBy).toMatchObject({ by: "cem" });
    const changes = await sluice.changes({ bucket: bucket.name });
    expect(changes.map(({ subject }) => subject)).toEqual(["pause", "pause", "pause", "policy"]);
  });

  it.each([
    ["another policy", (bucket: Bucket) => bucket.configure({ rate: "9/s" }, { generation: 1 })],
    ["the same policy", (bucket: Bucket) => bucket.configure({ rate: "500/s" }, { generation: 1 })],
    ["the code's policy", (bucket: Bucket) => bucket.configure("code", { generation: 1 })],
  ])("keeps its end when %s was refused", async (_what, change) => {
    const { bucket } = await withOverride();

    expect(await rejectionOf(change(bucket))).toBeInstanceOf(ChangedError);

    await expectAnnsToEnd(bucket);
  });

  it("still shows who paused a bucket when another pause or a resume was refused", async () => {
    const { bucket } = await withOverride();
    await bucket.pause({ by: "ann" });

    await rejectionOf(bucket.pause({ by: "bob", generation: 1 }));
    await rejectionOf(bucket.resume({ by: "bob", generation: 1 }));

    expect((await bucket.status()).pausedBy).toMatchObject({ by: "ann" });
  });

  it("is in force for the rest of its time when a later change is undone", async () => {
    const { bucket } = await withOverride();
    await bucket.configure({ rate: "50/s" });

    await bucket.undo({ by: "ann" });

    expect(await bucket.peek()).toMatchObject({ policy: "500/s" });
    await expectAnnsToEnd(bucket);
  });

  it("does not return if its time was over in between", async () => {
    const bucket = open().bucket("api", { rate: "1000/s" });
    await bucket.configure({ rate: "500/s" }, { forMs: 1 });
    await waitUntil(async () => (await bucket.status()).setBy?.endsInMs !== 1, "its time is over");
    await bucket.configure({ rate: "50/s" });

    await bucket.undo();

    expect(await bucket.peek()).toMatchObject({ policy: "1000/s", policyFrom: "code" });
  });

  it("is not ended when its time was just extended", async () => {
    const { sluice, bucket } = await withOverride();
    const [first] = await sluice.changes();
    await bucket.configure({ rate: "500/s" }, { by: "bob", forMs: 10 * MINUTE_MS });

    const { text } = (await (bucket as OwnedBucket).inForce()).policy;
    await (bucket as OwnedBucket).expire({
      bucket: "api",
      id: first!.id,
      text,
      by: "ann",
      reason: undefined,
      atMs: first!.atMs,
      untilMs: first!.atMs,
      generation: undefined,
    });

    const { source, setBy } = await bucket.status();
    expect(source).toBe("override");
    expect(setBy).toMatchObject({ by: "bob" });
    expect(setBy!.endsInMs).toBeGreaterThan(MINUTE_MS);
  });

  it("is skipped by undo when it was a pause that has ended", async () => {
    const { bucket } = await withOverride();
    await bucket.pause({ forMs: 1 });
    await waitUntil(async () => (await bucket.peek()).pausedForMs === 0, "the pause is over");

    expect(await bucket.undo()).toMatchObject({ action: "configure" });

    expect(await bucket.peek()).toMatchObject({ policyFrom: "code" });
  });
});
