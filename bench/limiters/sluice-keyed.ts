import { importBuild } from "../compare/import-build.ts";
import type { Contender } from "./contender.ts";
import { keepCalling } from "./keep-calling.ts";

/** Calls for 100 keys in turn, under the cap and 50/s for each key. */
export const hundredKeys: Contender = keyed("Sluice, 100 keys", 100);
/** The same for 10,000 keys. */
export const manyKeys: Contender = keyed("Sluice, 10,000 keys", 10_000);

function keyed(title: string, keys: number): Contender {
  return {
    title,
    async connect({ redisUrl, cap, callers, build }) {
      const { createSluice } = await importBuild(build);
      const opened = createSluice({ redis: redisUrl });
      const bucket = opened.bucket("bench", { rate: `${cap}/s`, perKey: { rate: "50/s" } });
      await bucket.draw({ key: "warm-up" });

      let calls = 0;
      const calling = keepCalling({
        callers,
        call: () => bucket.draw({ key: `k${calls++ % keys}` }),
      });
      return { ...calling, close: () => opened.close() };
    },
  };
}
