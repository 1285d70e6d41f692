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
import { bucketPeek, bucketSteer } from "./scripts/bucket/bucket.ts";
import { costsSettle, givenSettle, slotsReturn } from "./scripts/bucket/give-back.ts";
import { bucketKeys, awayKey } from "./scripts/keys.ts";
import { leasesRelease, leasesRenew } from "./scripts/bucket/leases.ts";
import { ratiosLearn } from "./scripts/bucket/ratios.ts";
import { slotNote } from "./scripts/bucket/slot-note.ts";
import { refusalOf, runScript, type Script } from "./scripts/script.ts";
import { slotsDraw, type SlotsDraw } from "./scripts/bucket/slots-draw.ts";

export interface RedisStoreOptions {
  /** A connection of the store's own, from `connect(input, "store")`; the store closes it. */
  readonly redis: Redis | Cluster;
  /** Makes another one, when an asker first listens. */
  readonly connectSubscriber: () => Redis | Cluster;
  readonly prefix: string;
  /** How long a draw may wait for an answer, reconnects included. */
  readonly timeoutMs: number;
  readonly breaker: BreakerOptions;
  readonly logger: Logger;
  /** A server stopped answering, or answers again. */
  readonly onChange: (event: StoreEvent) => void;
}

/** The store, and on the same connection what is known of the fleet. */
export interface RedisStore extends Store {
  readonly insight: InsightStore;
}

const REQUEST_BYTES = 9;

/** Buckets in Redis, shared by all replicas that use the same server and prefix. */
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

  // Copied into what is there, here and below: a copy that grows would stay in memory for long.
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

  /** A lost reply may have granted leases, which no caller knows; they are released before the next try. */
  function drawAgain(request: DrawRequest): () => ReturnType<Store["draw"]> {
    let isFirst = true;
    return async () => {
      if (!isFirst && request.leases > 0) await releaseAll(request);
      isFirst = false;
      return drawOnce(request);
    };
  }

  async function releaseAll({ slotRequests, lease, leases, ...rest }: DrawRequest): Promise<void> {
    const numbers = Array.from({ length: Math.min(leases, 1_000) }, (_, index) => lease + index);
    const { bucket, asker, terms } = rest;
    const ofKeys = slotRequests.flatMap(({ scopes }) =>
      scopes.map((scope) => [scope.key, scope] as const),
    );
    const scopes = [...new Map(ofKeys).values()];
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
    learn: (request) =>
      requests.sendOnce(request.bucket, () =>
        runScript(redis, ratiosLearn, { ...request, prefix }),
      ),
    readOutages: (request) => requests.send(request.bucket, () => notes.readOutages(request)),
    noteOutage: (note) => requests.sendOnce(note.bucket, () => notes.noteOutage(note)),
    listen: (asker, wake) => notifications.listen(asker, wake),
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

/** Draws by a plain try if one can serve the request, else by `slots-draw`, which can serve all. */
export async function drawSlots(run: RunDraw, input: SlotsDraw): Promise<DrawReply> {
  return (await runPlainTry<Promise<DrawReply | undefined>>(input, run)) ?? run(slotsDraw, input);
}

/** Sets the calendar days of requests by the server's clock, whatever this process's clock says. */
function createServerDays(redis: Redis | Cluster) {
  /** How far the server's clock runs ahead of this process's; undefined until calendar days need it. */
  let aheadUs: number | undefined;

  async function askAheadUs(): Promise<number> {
    const [seconds, micros] = await redis.time();
    return Number(seconds) * 1_000_000 + Number(micros) - wallUs();
  }

  return {
    /** The same request, with its calendar days; most have none, and need no answer from the server. */
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

/** Notes of unreachable downstreams. They are read after a failure, and when somebody looks at a bucket. */
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
