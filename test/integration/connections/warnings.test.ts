import { describe, expect, it } from "vitest";
import type { Logger } from "sluice";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();

function openLog(): { readonly logger: Logger; readonly lines: string[] } {
  const lines: string[] = [];
  const logger = { warn: (_facts: object, line: string) => void lines.push(line), error: () => {} };
  return { logger, lines };
}

describe("a problem of every call is logged once, and not for each call,", () => {
  it("when no call can read its actual cost", async () => {
    const { logger, lines } = openLog();
    const bucket = sluices.open({ logger }).bucket("b", { rate: "10000/s" });
    const settle = (): never => {
      throw new Error("no usage in it");
    };
    const call = bucket.throttled(async () => {}, { settle });

    await Promise.all(Array.from({ length: 100 }, () => call()));

    await waitUntil(() => lines.length > 0, "it is said");
    expect(lines).toEqual([
      'settle() failed; the estimate of bucket "b" stays: Error: no usage in it',
    ]);
  });

  it("when no job can read the limits of its key", async () => {
    const { logger, lines } = openLog();
    const producer = sluices.open();
    const open = { perKey: { rate: "5/s" } };
    const jobs = producer.queue<number>("jobs", { bucket: producer.bucket("b", open) });
    await jobs.enqueueMany([1, 2, 3], { key: "acme" });
    let asked = 0;
    const perKey = (): never => {
      asked += 1;
      throw new Error("the table of tiers is away");
    };
    const sluice = sluices.open({ logger });
    const own = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { perKey }) });
    sluice.worker(own, async () => {});

    await waitUntil(() => asked >= 9, "each job has asked three times");

    expect(lines).toEqual(["perKey failed; retrying in 1 s."]);
  });
});
