import type { Sluice } from "sluice";
import { importBuild } from "../compare/import-build.ts";
import type { Contender } from "./contender.ts";
import { keepCalling } from "./keep-calling.ts";

export const sluice: Contender = {
  title: "Sluice",
  async connect({ redisUrl, cap, callers, build }) {
    const { createSluice } = await importBuild(build);
    const opened = createSluice({ redis: redisUrl });
    const bucket = opened.bucket("bench", { rate: `${cap}/s` });
    await bucket.draw();
    const calling = keepCalling({ callers, call: () => bucket.draw() });
    return { ...calling, close: () => opened.close() };
  },
};

/** The members of `pool`, which share the cap evenly. */
const MEMBERS = ["a", "b", "c", "d"];

/** The same, but each call uses one of four members of a pool. */
export const pool: Contender = {
  title: "Sluice, a pool of four members",
  async connect({ redisUrl, cap, callers, build }) {
    const { createSluice } = await importBuild(build);
    const opened = createSluice({ redis: redisUrl });
    const rate = `${cap / MEMBERS.length}/s` as const;
    const members = Object.fromEntries(MEMBERS.map((name) => [name, { rate }]));
    // An older build has no pools. It calls through a plain bucket.
    const drawn =
      "pool" in opened
        ? opened.pool("bench", { members })
        : (opened as Sluice).bucket("bench", { rate: `${cap}/s` });
    await drawn.draw();
    const calling = keepCalling({ callers, call: () => drawn.draw() });
    return { ...calling, close: () => opened.close() };
  },
};

/** The same as `sluice`, but each call also spends from a budget of the day. */
export const budget: Contender = {
  title: "Sluice, a rate and a budget",
  async connect({ redisUrl, cap, callers, build }) {
    const sluice = await importBuild(build);
    const opened = sluice.createSluice({ redis: redisUrl });
    const limits = [sluice.leakyBucket(`${cap}/s`)];
    // An older build has no budgets.
    if ("budget" in sluice) {
      limits.push(sluice.budget({ unit: "usd", amount: 1_000_000, per: "day" }));
    }
    const bucket = opened.bucket("bench", { limits });
    const cost = limits.length === 1 ? {} : { cost: { usd: 0.001 } };
    await bucket.draw(cost);
    const calling = keepCalling({ callers, call: () => bucket.draw(cost) });
    return { ...calling, close: () => opened.close() };
  },
};
