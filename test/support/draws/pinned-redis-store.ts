import type { Redis } from "ioredis";
import { addResets, type WithResets } from "../../../src/core/limits/calendar-windows.ts";
import type { Store } from "../../../src/core/store.ts";
import { createOutageNotes } from "../../../src/stores/redis/bucket-store.ts";
import { drawSlots } from "../../../src/stores/redis/bucket-store.ts";
import { runScript, type Script } from "../../../src/stores/redis/scripts/script.ts";
import {
  bucketBudgets,
  bucketPeek,
  bucketSteer,
} from "../../../src/stores/redis/scripts/bucket/bucket.ts";
import {
  costsSettle,
  givenSettle,
  slotsReturn,
} from "../../../src/stores/redis/scripts/bucket/give-back.ts";
import { slotNote } from "../../../src/stores/redis/scripts/bucket/slot-note.ts";
import { leasesRelease, leasesRenew } from "../../../src/stores/redis/scripts/bucket/leases.ts";
import { budgetsKey, ownersOfLedgers } from "../../../src/stores/redis/scripts/keys.ts";
import { warningsRead } from "../../../src/stores/redis/scripts/bucket/budget-warnings.ts";
import { ratiosLearn } from "../../../src/stores/redis/scripts/bucket/ratios.ts";

/** The store in Redis, with the server's clock pinned to a clock of the test's. */
export function createPinnedRedisStore(
  redis: Redis,
  given: {
    prefix: string;
    nowUs: () => number;
    /** A draw was answered by this script. */
    onDrawn?: (script: string) => void;
  },
): Store {
  const { prefix, nowUs, onDrawn } = given;

  async function run<Input extends WithResets, Output>(
    script: Script<Input & { prefix: string; pinnedUs: number }, Output>,
    input: Input,
  ): Promise<Output> {
    const pinnedUs = nowUs();
    return runScript(redis, script, { ...addResets(input, pinnedUs), prefix, pinnedUs });
  }

  return {
    async draw(request) {
      const pinnedUs = nowUs();
      const input = { ...addResets(request, pinnedUs), prefix, pinnedUs };
      const reply = await drawSlots(async (script, full) => {
        const answer = await runScript(redis, script, full);
        if (answer !== undefined) onDrawn?.(script.name);
        return answer;
      }, input);
      return { ...reply, sentAtMs: performance.now() };
    },
    giveBack: (request) => run(slotsReturn, request),
    settle: (request) => run(costsSettle, request),
    noteSlot: (note, settling) =>
      settling === undefined
        ? runScript(redis, slotNote, { ...note, request: "test", prefix })
        : run(givenSettle, { ...settling, ...note, request: "test" }),
    renew: (request) => run(leasesRenew, request),
    release: (request) => run(leasesRelease, request),
    steer: (request) => run(bucketSteer, request),
    peek: (request) => run(bucketPeek, request),
    budgets: (request) => run(bucketBudgets, request),
    keysWithBudgets: async (bucket) =>
      ownersOfLedgers(await redis.zrangebyscore(budgetsKey(prefix, bucket), nowUs(), "+inf")),
    readWarnings: (request) =>
      runScript(redis, warningsRead, { ...request, prefix, pinnedUs: nowUs() }),
    learn: (request) => runScript(redis, ratiosLearn, { ...request, prefix }),
    ...createOutageNotes(redis, prefix),
    listen: () => undefined,
    close: async () => undefined,
  };
}
