import { Pool } from "undici";

/** The connections to all upstreams. There are no others: where nobody configured one, nothing can be sent. */
export interface Pools {
  of(origin: string): Pool;
  /** Resolves when all that is under way has ended. */
  close(): Promise<void>;
}

/** How long an upstream may take to answer, and to go on: a model may think for minutes. */
const PATIENCE_MS = 600_000;

export function createPools(origins: readonly string[]): Pools {
  const pools = new Map<string, Pool>();
  const options = { headersTimeout: PATIENCE_MS, bodyTimeout: PATIENCE_MS };
  for (const origin of new Set(origins)) pools.set(origin, new Pool(origin, options));
  return {
    of: (origin) => pools.get(origin)!,
    async close() {
      await Promise.all([...pools.values()].map((pool) => pool.close()));
    },
  };
}
