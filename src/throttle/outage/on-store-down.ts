import * as z from "zod";
import type { Logger } from "../../core/logger.ts";
import type { Store, Wake } from "../../core/store.ts";
import { createOutageStore } from "./outage-store.ts";
import {
  createLocalFallback,
  createOpenFallback,
  type KnownAtOutage,
  type FallbackStore,
} from "./fallback-stores.ts";

/**
 * What happens to a bucket's calls while Redis does not answer:
 *
 * | option      | calls of the application                                        | where                                  |
 * | ----------- | --------------------------------------------------------------- | -------------------------------------- |
 * | `"refuse"`  | fail with `StoreUnavailableError`                               | the store throws it (`redis/requests`) |
 * | `"wait"`    | wait, and the bucket retries each second                        | `waiting/pacer.ts`, `retries.ts`       |
 * | `{ local }` | use a part of this process's share of each limit                | `outage-store.ts`, `fallback-stores.ts` |
 * | `"open"`    | pass without any limit                                          | `outage-store.ts`, `fallback-stores.ts` |
 *
 * Jobs wait, except with `{ local }`: see `queue/worker/job-start.ts`.
 */
export type OnStoreDown =
  | "wait"
  | "refuse"
  | "open"
  /**
   * The part of this process's share of each limit that the process may use, above 0 and up to 1.
   */
  | { readonly local: number };

/** How a bucket starts after Redis has lost the bucket's state. */
export type OnStateLost = "empty" | "full";

const LOCAL_ERROR = { error: "give a part of this process's rate, above 0 and up to 1" };
const LOCAL = z.strictObject({
  local: z.number(LOCAL_ERROR).min(0.001, LOCAL_ERROR).max(1, LOCAL_ERROR),
});

/** @internal */
export const ON_STORE_DOWN: z.ZodType<OnStoreDown> = z.unknown().transform((given, context) => {
  if (given === "wait" || given === "refuse" || given === "open") return given;
  const read = LOCAL.safeParse(given);
  if (read.success) return read.data;
  const message =
    'give "wait", "refuse", "open", or { local: 0.5 } with a number above 0 and up to 1';
  context.addIssue({ code: "custom", message });
  return z.NEVER;
});

/** @internal */
export const ON_STATE_LOST: z.ZodType<OnStateLost> = z.enum(["empty", "full"], {
  error: 'give "empty" or "full"',
});

/** Opens a store in this process's memory that uses the clock `nowUs`. */
export type OpenLocalStore = (nowUs: () => number) => Store;

/**
 * Applies `onStoreDown` to a bucket's store. With `"open"` and `{ local }`, the returned store
 * serves draws from a stand-in while Redis does not answer. Otherwise, the bucket's store is
 * returned unchanged.
 */
export function applyOnStoreDown(parts: {
  readonly store: Store;
  readonly bucket: string;
  readonly asker: string;
  readonly logger: Logger;
  readonly onStoreDown: OnStoreDown;
  readonly openLocalStore?: OpenLocalStore | undefined;
  readonly wake: Wake;
}): Store {
  const { store, bucket, asker, logger, onStoreDown, openLocalStore, wake } = parts;
  if (onStoreDown === "open")
    return createOutageStore({ store, bucket, openFallback: openUnlimited });
  if (typeof onStoreDown === "string" || openLocalStore === undefined) return store;
  const { local: share } = onStoreDown;
  return createOutageStore({ store, bucket, openFallback: openLocal });

  function openUnlimited(known: KnownAtOutage): FallbackStore {
    const problem = `Redis does not answer: ALL calls of bucket "${bucket}" pass WITHOUT ANY LIMIT until it does.`;
    logger.error({ bucket, onStoreDown }, problem);
    return createOpenFallback(known);
  }

  function openLocal({ nowUs, replicas, runningOf }: KnownAtOutage): FallbackStore | undefined {
    // Before the first reply from Redis, this process does not know the number of replicas. It
    // therefore cannot compute its share.
    if (nowUs === undefined || replicas === 0) return undefined;
    const percent = Number(((100 * share) / replicas).toPrecision(3));
    const problem = `Redis does not answer: bucket "${bucket}" continues in this process at ${percent} % of its limits until it does.`;
    logger.warn({ bucket, share, replicas }, problem);
    const openStore: OpenLocalStore = (clock) => {
      const local = openLocalStore!(clock);
      local.listen(asker, wake);
      return local;
    };
    return createLocalFallback({ bucket, share, known: { nowUs, replicas, runningOf }, openStore });
  }
}
