import { randomBytes } from "node:crypto";
import type { Cluster, Redis } from "ioredis";
import { WrongResetsError } from "../../core/errors.ts";
import type { StoreEvent } from "../../core/events/events.ts";
import { hasDays, addResets, type WithResets } from "../../core/limits/calendar-windows.ts";
import type { Logger } from "../../core/logger.ts";
import { type DrawReply, type DrawRequest, type Store, OUTAGE_KEPT_MS } from "../../core/store.ts";
import type { InsightStore } from "../../core/stores/insight/store.ts";
import { createRedisInsight } from "./facts/insight.ts";
import { createBreakers, type BreakerOptions } from "./requests/breaker.ts";
import { createNotifications } from "./pubsub.ts";
import { createRequests } from "./requests/requests.ts";
import { readCostTooLarge, runPlainTry } from "./scripts/bucket/draw-slots.ts";
import { bucketBudgets, bucketPeek, bucketSteer } from "./scripts/bucket/bucket.ts";
import { costsSettle, givenSettle, slotsReturn } from "./scripts/bucket/give-back.ts";
import { awayKey, bucketKeys, budgetsKey, ownersOfLedgers } from "./scripts/keys.ts";
import { leasesRelease, leasesRenew } from "./scripts/bucket/leases.ts";
import { warningsRead } from "./scripts/bucket/budget-warnings.ts";
import { ratiosLearn } from "./scripts/bucket/ratios.ts";
import { slotNote } from "./scripts/bucket/slot-note.ts";
import { refusalOf, runScript, type Script } from "./scripts/script.ts";
import { slotsDraw, type SlotsDraw } from "./scripts/bucket/slots-draw.ts";

export interface RedisStoreOptions {
  /** The store's own connection, from `connect(input, "store")`. The store closes it. */
  readonly redis: Redis | Cluster;
  /** Opens the connection for notifications, when the first replica listens. */
  readonly connectSubscriber: () => Redis | Cluster;
  readonly prefix: string;
  /** The maximum time that a draw waits for a reply, including reconnects. */
  readonly timeoutMs: number;
  readonly breaker: BreakerOptions;
  readonly logger: Logger;
  /** Called when a server stops answering, and when it answers again. */
  readonly onChange: (event: StoreEvent) => void;
}

/**
 * The store for buckets. On the same connection, `insight` stores the fleet's reports, changes and
 * rules.
 */
export interface RedisStore extends Store {
  readonly insight: InsightStore;
}

const REQUEST_BYTES = 9;

/**
 * Creates a store for buckets in Redis. All replicas with the same server and prefix share the
 * buckets.
 */
export function createRedisStore(options: RedisStoreOptions): RedisStore {
  const { redis, prefix, timeoutMs } = options;
  const notifications = createNotifications(options.connectSubscriber, prefix);
  const days = createServerDays(redis);
  const notes = createOutageNotes(redis, prefix);
  const breakers = createBreakers(redis, {
    ...options,
    keyOf: (bucket) => bucketKeys(prefix, bucket, [], [])[0]!,
  });
  const requests = createRequests(redis, breakers, timeoutMs);

  type Input = WithResets & { readonly bucket: string };

  async function run<Given extends Input, Output>(
    script: Script<Given & { prefix: string }, Output>,
    input: Given,
  ): Promise<Output> {
    return runScript(redis, script, { prefix, ...(await days.reckon(input)) });
  }

  function send<Given extends Input, Output>(
    script: Script<Given & { prefix: string }, Output>,
    input: Given,
  ): Promise<Output> {
    return requests.send(input.bucket, () => run(script, input));
  }

  function sendOnce<Given extends Input, Output>(
    script: Script<Given & { prefix: string }, Output>,
    input: Given,
  ): Promise<Output> {
    return requests.sendOnce(input.bucket, () => run(script, input));
  }

  // Here and below, new fields come first and the spread object last. In the opposite order, fields
  // are added to a copy, and a copy that grows stays in memory for longer.
  async function drawOnce(request: DrawRequest): ReturnType<Store["draw"]> {
    const input = await days.reckon(request);
    const sentAtMs = performance.now();
    try {
      const reply = await drawSlots((script, given) => runScript(redis, script, given), {
        prefix,
        ...input,
      });
      return { sentAtMs, ...reply };
    } catch (error) {
      const wrong = wrongResets(error);
      if (wrong === undefined) throw error;
      days.setServerUs(wrong.serverUs);
      return drawOnce(request);
    }
  }

  /**
   * Returns a function that draws again after a lost reply. That reply may have granted leases that
   * no caller knows, so the function first releases them.
   */
  function drawAgain(request: DrawRequest): () => ReturnType<Store["draw"]> {
    let isFirst = true;
    return async () => {
      if (!isFirst && request.leases > 0) await releaseAll(request);
      isFirst = false;
      return drawOnce(request);
    };
  }

  async function releaseAll(request: DrawRequest): Promise<void> {
    const { slotRequests, lease, leases, pool, ...rest } = request;
    const numbers = Array.from({ length: Math.min(leases, 1_000) }, (_, index) => lease + index);
    const { bucket, asker, terms } = rest;
    const ofKeys = slotRequests.flatMap(({ scopes }) =>
      scopes.map((scope) => [scope.key, scope] as const),
    );
    const scopes = [...new Map(ofKeys).values(), ...(pool?.members ?? [])];
    await run(leasesRelease, { bucket, asker, terms, scopes, leases: numbers });
  }

  return {
    insight: createRedisInsight(redis, prefix, requests),
    async draw(request) {
      notifications.used();
      try {
        return await requests.send(request.bucket, drawAgain(request));
      } catch (error) {
        throw readCostTooLarge(error, request) ?? error;
      }
    },
    giveBack: (request) => sendOnce(slotsReturn, request),
    settle: (request) => sendOnce(costsSettle, request),
    noteSlot(note, settling) {
      const request = randomBytes(REQUEST_BYTES).toString("base64url");
      if (settling === undefined) {
        const { bucket } = note;
        return requests.send(bucket, () =>
          runScript(redis, slotNote, { ...note, request, prefix }),
        );
      }
      const { slot, untilMs } = note;
      return send(givenSettle, { ...settling, slot, untilMs, request });
    },
    renew: (request) => sendOnce(leasesRenew, request),
    release: (request) => sendOnce(leasesRelease, request),
    steer: (request) => send(bucketSteer, request),
    peek: (request) => send(bucketPeek, request),
    budgets: (request) =>
      request.change.do === "look"
        ? send(bucketBudgets, request)
        : sendOnce(bucketBudgets, request),
    keysWithBudgets: (bucket) =>
      requests.send(bucket, async () =>
        ownersOfLedgers(
          await redis.zrangebyscore(budgetsKey(prefix, bucket), Date.now() * 1_000, "+inf"),
        ),
      ),
    readWarnings: (request) =>
      requests.send(request.bucket, () => runScript(redis, warningsRead, { ...request, prefix })),
    learn: (request) =>
      requests.sendOnce(request.bucket, () =>
        runScript(redis, ratiosLearn, { ...request, prefix }),
      ),
    readOutages: (request) => requests.send(request.bucket, () => notes.readOutages(request)),
    noteOutage: (note) => requests.sendOnce(note.bucket, () => notes.noteOutage(note)),
    listen: (replica, wake) => notifications.listen(replica, wake),
    async close() {
      requests.close();
      notifications.close();
      redis.disconnect();
    },
  };
}

function wrongResets(error: unknown): WrongResetsError | undefined {
  const refusal = refusalOf(error);
  return refusal?.reason === "WRONG_RESETS"
    ? new WrongResetsError(Number(refusal.detail))
    : undefined;
}

type RunDraw = <Input extends SlotsDraw, Output>(
  script: Script<Input, Output>,
  input: Input,
) => Promise<Output>;

/**
 * Draws with a fast script if one can serve the request. Otherwise draws with `slots-draw`, which
 * can serve every request.
 */
export async function drawSlots(run: RunDraw, input: SlotsDraw): Promise<DrawReply> {
  return (await runPlainTry<Promise<DrawReply | undefined>>(input, run)) ?? run(slotsDraw, input);
}

/**
 * Sets the calendar days in requests by the server's clock, even if this process's clock is wrong.
 */
function createServerDays(redis: Redis | Cluster) {
  /**
   * How far the server's clock is ahead of this process's clock, in µs. Undefined until a request
   * needs calendar days.
   */
  let aheadUs: number | undefined;

  async function askAheadUs(): Promise<number> {
    const [seconds, micros] = await redis.time();
    return Number(seconds) * 1_000_000 + Number(micros) - wallUs();
  }

  return {
    /**
     * Returns the request with its calendar days. Most requests have none, and need no reply from
     * the server.
     */
    async reckon<Request extends WithResets>(request: Request): Promise<Request> {
      if (!hasDays(request)) return request;
      aheadUs ??= await askAheadUs();
      return addResets(request, wallUs() + aheadUs);
    },
    setServerUs(serverUs: number): void {
      aheadUs = serverUs - wallUs();
    },
  };
}

function wallUs(): number {
  return Date.now() * 1_000;
}

/**
 * Stores which downstreams are unreachable. The entries are read after a failure, and when a
 * bucket's status is requested.
 */
export function createOutageNotes(
  redis: Redis | Cluster,
  prefix: string,
): Pick<Store, "readOutages" | "noteOutage"> {
  return {
    async readOutages({ bucket, keys }) {
      const names = keys.map((key) => awayKey(prefix, bucket, key));
      const found = await redis.mget(names);
      const reading = found.map(async (coolMs, index) => {
        if (coolMs === null) return undefined;
        const leftMs = (await redis.pttl(names[index]!)) - OUTAGE_KEPT_MS;
        return { coolMs: Number(coolMs), inMs: Math.max(1, leftMs) };
      });
      return Promise.all(reading);
    },
    async noteOutage({ bucket, key, coolMs }) {
      const name = awayKey(prefix, bucket, key);
      if (coolMs === undefined) {
        await redis.del(name);
        return;
      }
      const forMs = Math.ceil(coolMs);
      await redis.set(name, forMs, "PX", forMs + OUTAGE_KEPT_MS);
    },
  };
}
