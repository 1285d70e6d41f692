import { describe, expect, it } from "vitest";
import { leakyBucket, type BucketOptions, type Sluice } from "sluice";
import { deferred } from "../../support/async/deferred.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const OPTIONS: BucketOptions = { limits: [leakyBucket("1/h", { unit: "tokens", burst: 1_000 })] };

/** Long enough for a close that waits for nothing. */
async function roundTrips(sluice: Sluice): Promise<void> {
  for (let count = 0; count < 100; count++) await sluice.bucket("other", OPTIONS).peek();
}

describe("a sluice that closes while the cost of a call is read from its result", () => {
  it("books the cost first", async () => {
    const sluice = sluices.open();
    const read = deferred();
    const call = sluice.bucket("model", OPTIONS).throttled(async () => "answer", {
      cost: { tokens: 100 },
      settle: async () => {
        await read.promise;
        return { tokens: 7 };
      },
    });
    await call();

    let isClosed = false;
    const closing = sluice.close().then(() => (isClosed = true));
    await roundTrips(sluices.open());
    expect(isClosed).toBe(false);
    read.resolve();
    await closing;

    const other = sluices.open().bucket("model", OPTIONS);
    expect((await other.peek()).limits[0]!.level).toBe(7);
  });

  it("still closes when reading the cost never ends", async () => {
    const sluice = sluices.open();
    const call = sluice.bucket("model", OPTIONS).throttled(async () => "answer", {
      cost: { tokens: 100 },
      settle: () => new Promise<undefined>(() => {}),
    });
    await call();

    await sluice.close();

    const other = sluices.open().bucket("model", OPTIONS);
    expect((await other.peek()).limits[0]!.level).toBe(100);
  });
});
