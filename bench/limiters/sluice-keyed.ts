import { importBuild } from "../compare/import-build.ts";
import type { Contender } from "./contender.ts";
import { keepCalling } from "./keep-calling.ts";

/** Calls for 100 keys in turn, under the cap and a limit of 50/s for each key. */
export const hundredKeys: Contender = keyed("Sluice, 100 keys", 100);
/** Calls for 10 keys. The limits per key add up to the cap, and the limit over all keys is twice as high. */
export const tenKeys: Contender = keyed("Sluice, 10 keys", 10, 2);
/** The same as `hundredKeys`, for 10,000 keys. */
export const manyKeys: Contender = keyed("Sluice, 10,000 keys", 10_000);

function keyed(title: string, keys: number, headroom = 1): Contender {
  return {
    title,
    async connect({ redisUrl, cap, callers, build }) {
      const { createSluice } = await importBuild(build);
      const opened = createSluice({ redis: redisUrl });
      const rate = `${cap * headroom}/s` as const;
      const bucket = opened.bucket("bench", { rate, perKey: { rate: "50/s" } });
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
