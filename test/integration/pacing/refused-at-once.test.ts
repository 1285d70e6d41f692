import { describe, expect, it } from "vitest";
import type { Bucket, BucketOptions } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();

/** Far longer than a test lasts: who is refused within the test was not made to wait. */
const MAX_WAIT_MS = 1_200_000;
const PAUSE_MS = 1_800_000;

const kinds: [string, BucketOptions, { readonly key?: string }][] = [
  ["a rate", { rate: "100/s" }, {}],
  ["a rate and limits of keys", { rate: "100/s", perKey: { rate: "10/s" } }, { key: "acme" }],
  ["limits of keys", { perKey: { rate: "10/s", concurrency: 2 } }, { key: "acme" }],
  ["calls at once", { concurrency: 3 }, {}],
];

function openTwo(options: BucketOptions): readonly [Bucket, Bucket] {
  const open = () => sluices.open().bucket("downstream", options);
  return [open(), open()];
}

describe.each(kinds)("a bucket with %s", (_, options, call) => {
  const bounded = { ...call, maxWaitMs: MAX_WAIT_MS };

  it("rejects immediately a call that another replica's pause outlasts, and accepts it after the resume", async () => {
    const [here, there] = openTwo(options);
    await there.pause({ forMs: PAUSE_MS });

    const refused = [
      await rejectionOf(here.draw(bounded)),
      await rejectionOf(here.run(async () => "ran", bounded)),
      await rejectionOf(here.fetch.with(bounded)("http://127.0.0.1:1/")),
    ];
    for (const each of refused) {
      expect(each).toMatchObject({ code: "ERR_WAIT_TOO_LONG", limitedBy: "a pause" });
      expect((each as { retryAfterMs?: number }).retryAfterMs).toBeGreaterThan(MAX_WAIT_MS);
    }
    await there.resume();
    await waitUntil(async () => {
      try {
        (await here.draw(bounded)).release();
        return true;
      } catch {
        return false;
      }
    }, "the call goes");
  });

  it("notifies a waiting call of the resume", async () => {
    const [here, there] = openTwo(options);
    await there.pause({ forMs: PAUSE_MS });
    const slot = here.draw({ ...call, maxWaitMs: 2 * PAUSE_MS });
    await waitUntil(async () => here.waiting > 0, "the call waits");

    await there.resume();

    const drawn = await slot;
    expect(drawn.bucket).toBe("downstream");
    drawn.release();
  });
});

describe("two buckets on one Redis", () => {
  it("see each other's usage", async () => {
    const [here, there] = openTwo({ rate: "1/h" });
    await there.draw();

    const refused = await rejectionOf(here.draw({ maxWaitMs: MAX_WAIT_MS }));
    expect(refused).toMatchObject({ code: "ERR_WAIT_TOO_LONG", limitedBy: "1/h" });
    expect((refused as { retryAfterMs?: number }).retryAfterMs).toBeGreaterThan(MAX_WAIT_MS);
  });
});
