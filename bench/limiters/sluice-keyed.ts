import type { Bucket, BucketOptions, Sluice } from "sluice";
import { importBuild } from "../compare/import-build.ts";
import type { Contender } from "./contender.ts";
import { keepCalling } from "./keep-calling.ts";

/** Calls for 100 keys in turn, under the cap and a limit of 50/s for each key. */
export const hundredKeys: Contender = keyed("Sluice, 100 keys", { keys: 100 });
/** Calls for 10 keys. The limits per key add up to the cap, and the limit over all keys is twice as high. */
export const tenKeys: Contender = keyed("Sluice, 10 keys", { keys: 10, headroom: 2 });
/** The same as `hundredKeys`, for 10,000 keys. */
export const manyKeys: Contender = keyed("Sluice, 10,000 keys", { keys: 10_000 });
/** The same as `hundredKeys` and `manyKeys`, but the keys take turns. */
export const fairKeys: Contender = keyed("Sluice, 100 keys in turns", { keys: 100, isFair: true });
export const manyFairKeys: Contender = keyed("Sluice, 10,000 keys in turns", {
  keys: 10_000,
  isFair: true,
});

interface KeyedLoad {
  readonly keys: number;
  /** The limit over all keys, as a multiple of the cap. Defaults to 1. */
  readonly headroom?: number;
  /** Whether the keys take turns. Defaults to false. */
  readonly isFair?: boolean;
}

function keyed(title: string, { keys, headroom = 1, isFair = false }: KeyedLoad): Contender {
  return {
    title,
    async connect({ redisUrl, cap, callers, build }) {
      const { createSluice } = await importBuild(build);
      const opened = createSluice({ redis: redisUrl });
      const options = { rate: `${cap * headroom}/s`, perKey: { rate: "50/s" } } as const;
      const bucket = openWith(isFair, opened, options);
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

function openWith(fair: boolean, sluice: Sluice, options: BucketOptions): Bucket {
  try {
    return sluice.bucket("bench", { ...options, fair });
  } catch (error) {
    // An older build does not know the option. Its keys take no turns.
    if ((error as { readonly option?: string }).option !== "fair") throw error;
    return sluice.bucket("bench", options);
  }
}
