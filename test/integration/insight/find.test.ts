import { describe, expect, it } from "vitest";
import { leakyBucket, type BucketOptions, type Sluice } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();

/** A bucket that one process declares and uses, and another process that has not its code. */
async function declared(options: BucketOptions, key?: string) {
  const [service, operator] = [sluices.open(), sluices.open()];
  const bucket = service.bucket("api", options);
  await bucket.draw({ key });
  await waitUntil(async () => (await operator.find("api")) !== undefined, "it is told of");
  return { bucket, operator, service };
}

const found = async (sluice: Sluice) => (await sluice.find("api"))!;

describe("a bucket that is found by its name", () => {
  it("has the policy that other processes declare, and changes it for them", async () => {
    const { bucket, operator } = await declared({ rate: "100/s", perKey: { rate: "5/s" } }, "k");
    const there = await found(operator);

    expect(await there.peek()).toMatchObject({ policy: "100/s; per key 5/s", policyFrom: "code" });
    await there.configure({ rate: "50/s" }, { by: "ann" });
    expect(await bucket.peek()).toMatchObject({ policy: "50/s; per key 5/s" });
    await there.configure("code");
    expect(await bucket.peek()).toMatchObject({ policy: "100/s; per key 5/s", policyFrom: "code" });
    await there.pause({ key: "k" });
    expect((await bucket.peek({ key: "k" })).pausedForMs).toBe(Infinity);
  });

  it("draws from the same bucket as they do", async () => {
    const { bucket, operator } = await declared({ rate: "100/s" });
    const there = await found(operator);

    const slots = await Promise.all(
      Array.from({ length: 20 }, (_, at) => (at % 2 === 0 ? bucket : there).draw()),
    );

    const atMs = slots.map((slot) => slot.atMs).toSorted((a, b) => a - b);
    const gapsMs = atMs.slice(1).map((at, index) => at - atMs[index]!);
    expect(Math.min(...gapsMs)).toBeGreaterThanOrEqual(9.99);
    expect(await bucket.peek()).toMatchObject({ policyFrom: "code", policy: "100/s" });
    expect(await operator.find("api")).toBe(there);
  });

  it("follows a pause that another process makes while its callers wait", async () => {
    const { bucket, operator } = await declared({ rate: "100/s" });
    const there = await found(operator);
    await there.draw();
    await bucket.pause();
    const waiting = there.draw();

    await bucket.resume();

    expect((await waiting).bucket).toBe("api");
  });

  it.each<[string, BucketOptions]>([
    ["functions", { limits: [leakyBucket("100/s")], perKey: () => ({ rate: "5/s" as const }) }],
    [
      "tiers",
      {
        rate: "100/s",
        perKey: { tiers: { free: { rate: "5/s" } }, tierOf: () => "free" as const },
      },
    ],
    [
      "a function of a level",
      { rate: "100/s", perKey: [{ rate: "20/s" }, () => ({ rate: "5/s" })] },
    ],
  ])(
    "rejects with the reason that only code knows limits of keys that are %s",
    async (_what, options) => {
      const { bucket, operator } = await declared(options, "k");
      const there = await found(operator);

      expect((await there.draw()).bucket).toBe("api");
      const error = await rejectionOf(there.draw({ key: ["k", "e"] }));
      expect(error).toMatchObject({ code: "ERR_INVALID_OPTION", option: "perKey" });
      await there.configure({ rate: "50/s" });
      expect((await bucket.peek()).policy).toMatch(/^50\/s; per key /);
      expect((await bucket.draw({ key: "k" })).key).toBe("k");
    },
  );

  it("is the local one if this process declares it, and undefined if no process does", async () => {
    const sluice = sluices.open();
    const own = sluice.bucket("api", { rate: "100/s" });

    expect(await sluice.find("api")).toBe(own);
    expect(await sluice.find("other")).toBeUndefined();
    for (const name of ["", "a:b", 7]) {
      const error = await rejectionOf(sluice.find(name as string));
      expect(error).toMatchObject({ code: "ERR_INVALID_OPTION", option: "name" });
    }
  });

  it("belongs to the code of this process once that declares it", async () => {
    const { operator } = await declared({ rate: "100/s" });
    const there = await found(operator);
    await there.draw();

    const own = operator.bucket("api", { rate: "200/s" });
    await own.draw();

    expect(await operator.find("api")).toBe(own);
    expect(await there.peek()).toMatchObject({ policy: "200/s" });
  });
});
