import { describe, expect, it } from "vitest";
import { leakyBucket, type Bucket, type CostOfCall } from "sluice";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();

/** Each call takes a third of what is estimated, and learns that. */
function open(): { bucket: Bucket; estimates: number[] } {
  const estimates: number[] = [];
  const cost: CostOfCall = async ({ learned }) => {
    const tokens = Math.round(900 * ((await learned()).get("model") ?? 1));
    estimates.push(tokens);
    return { tokens };
  };
  const bucket = sluices.open().bucket("learning", {
    limits: [leakyBucket("1000000/s", { unit: "tokens", burst: 100_000 })],
    cost,
    settle: (_result, { learn }) => {
      learn("model", 300 / 900);
      return { tokens: 300 };
    },
  });
  return { bucket, estimates };
}

describe("the learned costs of a bucket", () => {
  it("apply to the first call of a replica that has seen none", async () => {
    const [first, second] = [open(), open()];
    await first.bucket.run(() => "answer");
    await waitUntil(async () => {
      await first.bucket.run(() => "answer");
      return first.estimates.at(-1) === 300;
    }, "it has learned");

    await second.bucket.run(() => "answer");

    expect(first.estimates[0]).toBe(900);
    expect(second.estimates).toEqual([300]);
  });

  it("remain after the sluice that learned them was closed", async () => {
    const sluice = sluices.open();
    const limits = [leakyBucket("1000/s")];
    const learning = sluice.bucket("kept", {
      limits,
      settle: (_result, { learn }) => learn("model", 0.5) as undefined,
    });
    await learning.run(() => "answer");
    await sluice.close();
    const known: [string, number][] = [];

    const later = sluices.open().bucket("kept", {
      limits,
      cost: async ({ learned }) => void known.push(...(await learned())),
    });
    await later.run(() => "answer");

    expect(known).toEqual([["model", 0.5]]);
  });
});
