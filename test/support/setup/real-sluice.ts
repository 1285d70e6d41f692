import { randomUUID } from "node:crypto";
import { afterEach, inject } from "vitest";
import { createSluice, type Sluice, type SluiceOptions } from "sluice";

export interface RealSluices {
  /** What all of one test's sluices share, and no other test's. */
  prefix(): string;
  /** Another replica on the test's Redis; it is closed after the test. */
  open(options?: SluiceOptions): Sluice;
}

/** Redis runs, but on a busy machine it may answer later than the default allows. */
const storeTimeoutMs = 30_000;

/** Sluices on a real Redis, with a prefix of its own for each test. */
export function realSluices(): RealSluices {
  let prefix = `t${randomUUID()}`;
  let opened: Sluice[] = [];
  afterEach(async () => {
    await Promise.all(opened.map((sluice) => sluice.close()));
    opened = [];
    prefix = `t${randomUUID()}`;
  });
  return {
    prefix: () => prefix,
    open(options) {
      const sluice = createSluice({
        redis: inject("redisUrl"),
        prefix,
        storeTimeoutMs,
        ...options,
      });
      opened.push(sluice);
      return sluice;
    },
  };
}
