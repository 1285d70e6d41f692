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
