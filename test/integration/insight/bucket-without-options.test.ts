import { describe, expect, it } from "vitest";
import type { Bucket } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();

/** A bucket whose limit only another process says, which is gone, as a process that opened it by its name has it. */
async function openByName(): Promise<Bucket> {
  const [declaring, other] = [sluices.open(), sluices.open()];
  await declaring.bucket("api", { rate: "100/s" }).draw();
  await declaring.close();
  const bucket = other.bucket("api");
  await bucket.draw();
  return bucket;
}

async function policyOf(bucket: Bucket): Promise<string[]> {
  const { policy, source } = await bucket.status();
  return [policy, source];
}

describe("a bucket that was opened by its name, without options,", () => {
  it("goes back to the limit of other processes' code by undo()", async () => {
    const bucket = await openByName();
    await bucket.configure({ rate: "20/s" });

    await bucket.undo();

    expect(await policyOf(bucket)).toEqual(["100/s", "code"]);
    await bucket.draw();
  });

  it('returns to it by configure("code")', async () => {
    const bucket = await openByName();
    await bucket.configure({ rate: "20/s" });

    await bucket.configure("code");

    expect(await policyOf(bucket)).toEqual(["100/s", "code"]);
    await bucket.draw();
  });

  it("returns to it when the time of a change is over", async () => {
    const bucket = await openByName();

    await bucket.configure({ rate: "20/s" }, { forMs: 200 });

    await waitUntil(async () => {
      await bucket.draw();
      return (await bucket.status()).source === "code";
    }, "the change has ended");
    expect(await policyOf(bucket)).toEqual(["100/s", "code"]);
  });

  it("stays as it was set where no code is known, and reports that", async () => {
    const [by, other] = [sluices.open(), sluices.open()];
    const found = by.bucket("api", { rate: "100/s" });
    await found.configure({ rate: "20/s" });
    const bucket = other.bucket("api");

    const error = await rejectionOf(bucket.configure("code"));

    expect(error).toMatchObject({ code: "ERR_INVALID_OPTION", option: "rate" });
    expect(await policyOf(found)).toEqual(["20/s", "override"]);
  });
});
