import { addResets, type WithResets } from "../../core/limits/calendar-windows.ts";
import {
  OUTAGE_KEPT_MS,
  type ClosedWindow,
  type DrawReply,
  type DrawRequest,
  type LeasesRequest,
  type ReturnRequest,
  type SettleRequest,
  type Settled,
  type SteerRequest,
  type Steered,
  type Store,
  type Wake,
} from "../../core/store.ts";
import { bucketBudgets, bucketPeek, bucketSteer } from "../redis/scripts/bucket/bucket.ts";
import { readCostTooLarge, runPlainTry } from "../redis/scripts/bucket/draw-slots.ts";
import { costsSettle, givenSettle, slotsReturn } from "../redis/scripts/bucket/give-back.ts";
import { leasesRelease, leasesRenew } from "../redis/scripts/bucket/leases.ts";
import { warningsRead } from "../redis/scripts/bucket/budget-warnings.ts";
import { ratiosLearn } from "../redis/scripts/bucket/ratios.ts";
import { slotNote } from "../redis/scripts/bucket/slot-note.ts";
import { slotsDraw, type SlotsDraw } from "../redis/scripts/bucket/slots-draw.ts";
import { awayKey, budgetsKey, ownersOfLedgers } from "../redis/scripts/keys.ts";
import type { Script } from "../redis/scripts/script.ts";
import type { Commands, Table } from "./lua/runtime.ts";
import { openScripts, runTranslated, textOf } from "./lua/script.ts";
import { createMemoryRedis } from "./redis/memory-redis.ts";
import { translatedScript } from "./translated-scripts.ts";

const PREFIX = "memory";
const scriptOf = openScripts(translatedScript);

/** The requests of a bucket's store, answered at once: see `Store`. */
export interface MemoryBuckets {
  draw(request: DrawRequest): DrawReply;
  giveBack(request: ReturnRequest): void;
  settle(request: SettleRequest): Settled | undefined;
  renew(request: LeasesRequest): readonly number[];
  release(request: LeasesRequest): readonly ClosedWindow[];
  steer(request: SteerRequest): Steered;
}

interface MemoryScripts extends MemoryBuckets {
  readonly commands: Commands;
  /** The time of the bucket's clock in whole µs. */
  readonly wholeUs: () => number;
  /** Runs a script with its input as it is. */
  readonly send: <Input, Output>(script: Script<Input, Output>, input: Input) => Output;
  /** Adds what all scripts of a bucket need to a request. */
  readonly framed: <Request extends WithResets>(
    request: Request,
  ) => Request & { readonly prefix: string; readonly pinnedUs: number };
  readonly clear: () => void;
}

/** Receives a message about a bucket: for one replica, or for all of them. */
export type PublishWake = (replica: string | undefined, ...wake: Parameters<Wake>) => void;

/**
 * Creates the state of buckets in this process's memory. It translates the Redis store's scripts to
 * JavaScript, and runs them on a small in-memory Redis. No request waits for anything.
 *
 * `nowUs` is the bucket's clock, in µs. `expiryUs` is the clock that expires state. Defaults to
 * `nowUs`.
 */
export function createMemoryBuckets({
  nowUs,
  expiryUs = nowUs,
  publish,
}: {
  readonly nowUs: () => number;
  readonly expiryUs?: (() => number) | undefined;
  readonly publish: PublishWake;
}): MemoryScripts {
  const redis = createMemoryRedis({ nowUs: wholeUs, expiryUs, publish: publishText });
  const { commands, sweep, clear } = redis;

  function wholeUs(): number {
    return Math.floor(nowUs());
  }

  function publishText(channel: string, message: string): number {
    const [bucket, key] = textOf(message).split("\n") as [string, string?];
    const [, what, replica] = /^memory:(changes|wake):?(.*)$/s.exec(textOf(channel))!;
    if (what === "wake") publish(replica!, bucket, "lease", key);
    else publish(undefined, bucket, "change", key);
    return 1;
  }

  function send<Input, Output>(script: Script<Input, Output>, input: Input): Output {
    const reply = runTranslated(scriptOf(script.name), {
      keys: script.keys(input),
      args: script.args(input),
      isPacked: script.isPacked === true,
      commands,
    });
    return script.decode(reply, input);
  }

  function framed<Request extends WithResets>(
    request: Request,
  ): Request & { readonly prefix: string; readonly pinnedUs: number } {
    sweep();
    const pinnedUs = wholeUs();
    // The other order would take 4 µs: V8 adds fields slowly to an object that begins as a copy.
    return { prefix: PREFIX, pinnedUs, ...addResets(request, pinnedUs) };
  }

  function draw(input: SlotsDraw): DrawReply {
    try {
      return runPlainTry<DrawReply | undefined>(input, send) ?? send(slotsDraw, input);
    } catch (error) {
      throw readCostTooLarge(error, input) ?? error;
    }
  }

  return {
    commands,
    wholeUs,
    send,
    framed,
    clear,
    draw: (request) => draw(framed(request)),
    giveBack: (request) => send(slotsReturn, framed(request)),
    settle: (request) => send(costsSettle, framed(request)),
    renew: (request) => send(leasesRenew, framed(request)),
    release: (request) => send(leasesRelease, framed(request)),
    steer: (request) => send(bucketSteer, framed(request)),
  };
}

/** Creates a store in this process's memory: see {@link createMemoryBuckets} for both clocks. */
export function createMemoryStore(
  nowUs: () => number = monotonicUs,
  expiryUs: () => number = nowUs,
): Store {
  const wakes = new Map<string, Wake>();
  const buckets = createMemoryBuckets({ nowUs, expiryUs, publish });
  const { commands, wholeUs, send, framed, clear } = buckets;
  let noted = 0;

  function publish(replica: string | undefined, ...wake: Parameters<Wake>): void {
    // Delivers after the script, as Redis does, because a listener may run the same script again.
    queueMicrotask(() => {
      if (replica !== undefined) wakes.get(replica)?.(...wake);
      else for (const each of wakes.values()) each(...wake);
    });
  }

  return {
    async draw(request) {
      return { ...buckets.draw(request), sentAtMs: performance.now() };
    },
    async giveBack(request) {
      buckets.giveBack(request);
    },
    async settle(request) {
      return buckets.settle(request);
    },
    async noteSlot(note, settling) {
      const request = String((noted += 1));
      if (settling === undefined) return send(slotNote, { ...note, request, prefix: PREFIX });
      const { slot, untilMs } = note;
      return send(givenSettle, { ...framed(settling), slot, untilMs, request });
    },
    async renew(request) {
      return buckets.renew(request);
    },
    async release(request) {
      return buckets.release(request);
    },
    async steer(request) {
      return buckets.steer(request);
    },
    async peek(request) {
      return send(bucketPeek, framed(request));
    },
    async budgets(request) {
      return send(bucketBudgets, framed(request));
    },
    async keysWithBudgets(bucket) {
      const found = commands["ZRANGEBYSCORE"]!(budgetsKey(PREFIX, bucket), wholeUs(), "+inf");
      return ownersOfLedgers((found as Table).a.map((each) => textOf(each as string)));
    },
    async readWarnings(request) {
      return send(warningsRead, { ...request, prefix: PREFIX });
    },
    listen(replica, wake) {
      wakes.set(replica, wake);
    },
    async learn(request) {
      return send(ratiosLearn, { ...request, prefix: PREFIX });
    },
    async readOutages({ bucket, keys }) {
      return keys.map((key) => {
        const name = awayKey(PREFIX, bucket, key);
        const coolMs = commands["GET"]!(name);
        if (coolMs === false) return undefined;
        const leftMs = Number(commands["PTTL"]!(name)) - OUTAGE_KEPT_MS;
        return { coolMs: Number(coolMs), inMs: Math.max(1, leftMs) };
      });
    },
    async noteOutage({ bucket, key, coolMs }) {
      const name = awayKey(PREFIX, bucket, key);
      if (coolMs === undefined) commands["DEL"]!(name);
      else commands["SET"]!(name, coolMs, "PX", Math.ceil(coolMs) + OUTAGE_KEPT_MS);
    },
    async close() {
      clear();
      wakes.clear();
    },
  };
}

export function monotonicUs(): number {
  return Math.floor((performance.timeOrigin + performance.now()) * 1_000);
}
