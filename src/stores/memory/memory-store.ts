import { addResets, type WithResets } from "../../core/limits/calendar-windows.ts";
import { OUTAGE_KEPT_MS, type DrawReply, type Store, type Wake } from "../../core/store.ts";
import { bucketBudgets, bucketPeek, bucketSteer } from "../redis/scripts/bucket/bucket.ts";
import { readCostTooLarge, runPlainTry } from "../redis/scripts/bucket/draw-slots.ts";
import { costsSettle, givenSettle, slotsReturn } from "../redis/scripts/bucket/give-back.ts";
import { leasesRelease, leasesRenew } from "../redis/scripts/bucket/leases.ts";
import { ratiosLearn } from "../redis/scripts/bucket/ratios.ts";
import { slotNote } from "../redis/scripts/bucket/slot-note.ts";
import { slotsDraw, type SlotsDraw } from "../redis/scripts/bucket/slots-draw.ts";
import { awayKey, budgetsKey, ownersOfLedgers } from "../redis/scripts/keys.ts";
import type { Script } from "../redis/scripts/script.ts";
import type { Table } from "./lua/runtime.ts";
import { openScripts, runTranslated, textOf } from "./lua/script.ts";
import { createMemoryRedis } from "./redis/memory-redis.ts";
import { translatedScript } from "./translated-scripts.ts";

const PREFIX = "memory";
const scriptOf = openScripts(translatedScript);

/**
 * Creates a store in this process's memory. It translates the Redis store's scripts to JavaScript,
 * and runs them on a small in-memory Redis.
 *
 * `nowUs` is the bucket's clock, in µs. Defaults to the monotonic clock of this process. `expiryUs`
 * is the clock that expires state. Defaults to `nowUs`.
 */
export function createMemoryStore(
  nowUs: () => number = monotonicUs,
  expiryUs: () => number = nowUs,
): Store {
  const wakes = new Map<string, Wake>();
  const { commands, sweep, clear } = createMemoryRedis({ nowUs: wholeUs, expiryUs, publish });
  let noted = 0;

  function wholeUs(): number {
    return Math.floor(nowUs());
  }

  function publish(channel: string, message: string): number {
    const [bucket, key] = textOf(message).split("\n") as [string, string?];
    const [, what, replica] = /^memory:(changes|wake):?(.*)$/s.exec(textOf(channel))!;
    // Delivers after the script, as Redis does, because a listener may run the same script again.
    queueMicrotask(() => {
      if (what === "wake") wakes.get(replica!)?.(bucket, "lease", key);
      else for (const wake of wakes.values()) wake(bucket, "change", key);
    });
    return wakes.size;
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
    return { ...addResets(request, pinnedUs), prefix: PREFIX, pinnedUs };
  }

  function draw(input: SlotsDraw): DrawReply {
    try {
      return runPlainTry<DrawReply | undefined>(input, send) ?? send(slotsDraw, input);
    } catch (error) {
      throw readCostTooLarge(error, input) ?? error;
    }
  }

  return {
    async draw(request) {
      return { ...draw(framed(request)), sentAtMs: performance.now() };
    },
    async giveBack(request) {
      send(slotsReturn, framed(request));
    },
    async settle(request) {
      return send(costsSettle, framed(request));
    },
    async noteSlot(note, settling) {
      const request = String((noted += 1));
      if (settling === undefined) return send(slotNote, { ...note, request, prefix: PREFIX });
      const { slot, untilMs } = note;
      return send(givenSettle, { ...framed(settling), slot, untilMs, request });
    },
    async renew(request) {
      return send(leasesRenew, framed(request));
    },
    async release(request) {
      return send(leasesRelease, framed(request));
    },
    async steer(request) {
      return send(bucketSteer, framed(request));
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
