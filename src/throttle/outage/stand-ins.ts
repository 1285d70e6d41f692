import type { Logger } from "../../core/logger.ts";
import type { Store, Wake } from "../../core/store.ts";
import { createLocalStandIn } from "./local-stand-in.ts";
import { createOpenStandIn } from "./open-stand-in.ts";
import type { OnStoreDown } from "./outage-options.ts";
import { createOutageStore } from "./outage-store.ts";
import type { Known, StandIn } from "./stand-in.ts";

/** A store in this process's memory, on a clock that is given. */
export type OpenLocalStore = (nowUs: () => number) => Store;

/** The store of a bucket as `onStoreDown` has it: the same, or one whose calls go on when it does not answer. */
export function standByStore(parts: {
  readonly store: Store;
  readonly bucket: string;
  readonly asker: string;
  readonly logger: Logger;
  readonly onStoreDown: OnStoreDown;
  readonly openLocalStore?: OpenLocalStore | undefined;
  readonly wake: Wake;
}): Store {
  const { store, bucket, asker, logger, onStoreDown, openLocalStore, wake } = parts;
  if (onStoreDown === "open") return createOutageStore({ store, bucket, standIn: standOpen });
  if (typeof onStoreDown === "string" || openLocalStore === undefined) return store;
  const { local: share } = onStoreDown;
  return createOutageStore({ store, bucket, standIn: standLocal });

  function standOpen(known: Known): StandIn {
    const problem = `Redis does not answer: ALL calls of bucket "${bucket}" pass WITHOUT ANY LIMIT until it does.`;
    logger.error({ bucket, onStoreDown }, problem);
    return createOpenStandIn(known);
  }

  function standLocal({ nowUs, replicas, runningOf }: Known): StandIn | undefined {
    // Who was never told how many there are cannot know its part.
    if (nowUs === undefined || replicas === 0) return undefined;
    const percent = Number(((100 * share) / replicas).toPrecision(3));
    const problem = `Redis does not answer: bucket "${bucket}" goes on here at ${percent} % of its limits until it does.`;
    logger.warn({ bucket, share, replicas }, problem);
    const openStore: OpenLocalStore = (clock) => {
      const local = openLocalStore!(clock);
      local.listen(asker, wake);
      return local;
    };
    return createLocalStandIn({ bucket, share, known: { nowUs, replicas, runningOf }, openStore });
  }
}
