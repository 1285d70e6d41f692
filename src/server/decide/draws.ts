/**
 * Draws and tries over HTTP. If a client disconnects while it waits, it leaves the queue. If it
 * already has a slot, the slot is returned to the bucket.
 */
import { STATUS_CODES } from "node:http";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { reasonOf } from "../../core/describe.ts";
import type { Priority } from "../../core/input/options.ts";
import type { Key, NamedKeys } from "../../core/key-path.ts";
import type { Bucket } from "../../throttle/bucket.ts";
import type { Cost } from "../../throttle/costs.ts";
import type { KeyedSlot, Slot } from "../../throttle/slot/slot.ts";
import { headersOf, limitsOverWholeSeconds } from "../../throttle/try/rate-limit-headers.ts";
import { assertBucket } from "../access/access.ts";
import type { Problem } from "../app/codes.ts";
import { problemOf, sendProblem } from "../problem.ts";
import { endOfTurn, whenHungUp, type Caller, type Callers } from "./caller.ts";
import type { FoundBuckets } from "./found-buckets.ts";
import {
  BUCKET_PARAMS,
  DECISION,
  DRAW,
  DRAW_MANY,
  MANY_DRAWN,
  PROBLEM,
  SLOT,
  TRY,
} from "./schemas.ts";
import type { GivenSlots } from "./slots.ts";

/** The parameters of a request to draw or to try. */
interface Asked {
  readonly key?: Key;
  readonly keys?: NamedKeys;
  readonly cost?: Cost;
  readonly priority?: Priority;
  readonly maxWaitMs?: number;
  readonly holdMs?: number;
  readonly settles?: boolean;
}

interface AskedMany {
  readonly mode?: "all" | "each";
  readonly maxWaitMs?: number;
  readonly draws: readonly (Asked & { readonly bucket: string })[];
}

interface OfBucket {
  readonly Params: { readonly bucket: string };
  readonly Body: Asked | null;
}

/** A slot in a response. */
interface SlotReply {
  readonly id?: string;
  readonly bucket: string;
  readonly atMs: number;
  readonly waitedMs: number;
  readonly hasLease: boolean;
  /** In a pool, the name of the member that the call uses. */
  readonly member?: string;
  readonly heldForMs?: number;
}

export interface DrawParts {
  readonly found: FoundBuckets;
  readonly slots: GivenSlots;
  readonly callers: Callers;
}

const JSON_TYPE = "application/json; charset=utf-8";
const HOLD_MS = 60_000;
/** The same for a slot that the client will settle, as long as a budget keeps a reservation by default. */
const SETTLE_HOLD_MS = 600_000;
/**
 * The default maximum wait for draws of several slots. It ends the deadlock of two callers that
 * each hold what the other needs.
 */
const ALL_WAIT_MS = 30_000;

export function drawRoutes(app: FastifyInstance, { found, slots, callers }: DrawParts): void {
  /**
   * Builds the reply for a slot. If the client disconnects before it receives the reply, the slot
   * is returned to the bucket.
   */
  function replyOrGiveBack(
    slot: Slot,
    asked: Asked,
    caller: Pick<Caller, "onHangUp" | "log">,
  ): SlotReply {
    const { bucket, atMs, hasLease } = slot;
    const { cost, holdMs, settles } = asked;
    const { member } = slot as KeyedSlot;
    const common = { bucket, atMs, waitedMs: inMicroseconds(slot.waitedMs), hasLease };
    const slotReply = member === undefined ? common : { ...common, member };
    caller.onHangUp(() => giveBack(slot, asked, caller));
    // A call with cost 1 and no hold has nothing to settle or release.
    const isFinal = !hasLease && cost === undefined && holdMs === undefined;
    if (isFinal && settles !== true) return slotReply;
    // A lease blocks other calls, so it is not held for long unless the client asks for it.
    const heldForMs = holdMs ?? (settles === true && !hasLease ? SETTLE_HOLD_MS : HOLD_MS);
    const { id, letGo } = slots.give(slot, { cost, holdMs: heldForMs });
    caller.onHangUp(letGo);
    return { id, ...slotReply, heldForMs };
  }

  async function draw(
    request: FastifyRequest<OfBucket>,
    reply: FastifyReply,
  ): Promise<{ readonly slot: SlotReply }> {
    const asked = request.body ?? {};
    const bucket = await found.bucket(request.params.bucket);
    await slots.ready();
    const caller = callers.of(reply);
    const slot = await bucket.draw({ signal: caller.signal, ...drawn(asked) });
    return { slot: replyOrGiveBack(slot, asked, caller) };
  }

  async function tryDraw(request: FastifyRequest<OfBucket>, reply: FastifyReply): Promise<object> {
    const asked = request.body ?? {};
    const known = found.bucket(request.params.bucket);
    const bucket = known instanceof Promise ? await known : known;
    const preparing = slots.ready();
    if (preparing !== undefined) await preparing;
    await endOfTurn();
    const decision = await bucket.tryDraw(tried(asked));
    const limits = limitsOverWholeSeconds(decision);
    // Use a plain serializer, because Fastify's checks each value and takes several times as long.
    void reply.headers(headersOf(decision, limits)).type(JSON_TYPE).serializer(asJson);
    const { allowed, resetAfterMs, slot } = decision;
    const least = Math.min(...limits.map((limit) => limit.remaining));
    // Without limits, `remaining` is omitted, because JSON has no Infinity.
    const remaining = limits.length === 0 ? undefined : least;
    if (allowed) {
      const onHangUp = (act: () => void): void => whenHungUp(reply, act);
      const slotReply = replyOrGiveBack(slot, asked, { onHangUp, log: request.log });
      return { allowed, remaining, resetAfterMs, slot: slotReply, limits };
    }
    const { retryAfterMs, limitedBy } = decision;
    const detail = `Bucket ${JSON.stringify(bucket.name)} has no room now (limited by ${limitedBy}); try again in about ${retryAfterMs} ms.`;
    const { refusalStatus: status = 429 } = limits.find(({ name }) => name === limitedBy) ?? {};
    const problem: Problem = {
      type: "about:blank",
      title: STATUS_CODES[status]!,
      status,
      detail,
      code: "ERR_NO_ROOM",
      retryAfterMs,
    };
    const facts = { limitedBy, remaining, resetAfterMs, limits };
    return sendProblem(reply, { ...problem, ...facts });
  }

  /** Draws each slot independently. */
  async function drawEach({ draws, maxWaitMs }: AskedMany, caller: Caller): Promise<object> {
    const { signal } = caller;
    const results = await Promise.all(
      draws.map(async (each) => {
        try {
          const bucket = await found.bucket(each.bucket);
          const slot = await bucket.draw({ maxWaitMs, signal, ...drawn(each) });
          return { slot: replyOrGiveBack(slot, each, caller) };
        } catch (error) {
          return { problem: problemOf(error) };
        }
      }),
    );
    return { results };
  }

  /** Draws all slots or none. If one draw fails, the other slots are returned. */
  async function drawAll(
    { draws, maxWaitMs = ALL_WAIT_MS }: AskedMany,
    caller: Caller,
  ): Promise<object> {
    const buckets = await Promise.all(draws.map(async ({ bucket }) => found.bucket(bucket)));
    const failing = new AbortController();
    const stop = (): void => failing.abort(caller.signal.reason);
    caller.signal.addEventListener("abort", stop, { once: true });
    if (caller.signal.aborted) stop();
    const drawing = draws.map(async (each, index) => {
      try {
        return await buckets[index]!.draw({
          maxWaitMs,
          signal: failing.signal,
          ...drawn(each),
        });
      } catch (error) {
        failing.abort(error);
        throw error;
      }
    });
    const settled = await Promise.allSettled(drawing);
    if (failing.signal.aborted) {
      for (const [index, each] of settled.entries()) {
        if (each.status === "fulfilled") giveBack(each.value, draws[index]!, caller);
      }
      throw failing.signal.reason;
    }
    const slots = await Promise.all(drawing);
    const replies = slots.map((slot, index) => replyOrGiveBack(slot, draws[index]!, caller));
    return { results: replies.map((slot) => ({ slot })) };
  }

  const common = { config: { needs: "draw", bucket: "bucket" } } as const;
  app.post(
    "/v1/buckets/:bucket/draw",
    {
      ...common,
      schema: {
        summary: "Waits for a slot",
        params: BUCKET_PARAMS,
        body: DRAW,
        response: { 200: { type: "object", properties: { slot: SLOT } }, default: PROBLEM },
      },
    },
    draw,
  );
  app.post(
    "/v1/buckets/:bucket/try",
    {
      ...common,
      schema: {
        summary: "Answers at once whether a call may start",
        params: BUCKET_PARAMS,
        body: TRY,
        response: { 200: DECISION, default: PROBLEM },
      },
    },
    tryDraw,
  );
  app.post<{ Body: AskedMany }>(
    "/v1/draw",
    {
      config: { needs: "draw" },
      schema: {
        summary: "Waits for the slots of many calls",
        body: DRAW_MANY,
        response: { 200: MANY_DRAWN, default: PROBLEM },
      },
    },
    async (request, reply) => {
      const { body } = request;
      for (const { bucket } of body.draws) assertBucket(request, bucket);
      await slots.ready();
      const draw = body.mode === "all" ? drawAll : drawEach;
      return draw(body, callers.of(reply));
    },
  );
}

function drawn({
  key,
  keys,
  cost,
  priority,
  maxWaitMs,
  settles,
}: Asked): Parameters<Bucket["draw"]>[0] {
  // Omit `maxWaitMs` if the request has none, so that the default applies.
  const own = maxWaitMs === undefined ? {} : { maxWaitMs };
  return { priority, settles, ...tried({ key, keys, cost } as Asked), ...own };
}

function tried({ key, keys, cost }: Asked): { key?: Key; keys?: NamedKeys; cost?: Cost } {
  const read: { key?: Key; keys?: NamedKeys; cost?: Cost } = {};
  if (key !== undefined) read.key = key;
  if (keys !== undefined) read.keys = keys;
  if (cost !== undefined) read.cost = cost;
  return read;
}

/** Returns the slot and its lease to the bucket, because the call will not be made. */
export function giveBack(
  slot: Slot,
  { cost = 1 }: { readonly cost?: Cost | undefined },
  { log }: Pick<Caller, "log">,
): void {
  slot.release({ outcome: "ignored" });
  const units = typeof cost === "number" ? ["calls"] : Object.keys(cost);
  slot.settle(Object.fromEntries(units.map((unit) => [unit, 0]))).catch((error: unknown) => {
    log.warn({ bucket: slot.bucket, reason: reasonOf(error) }, "Could not give a slot back.");
  });
}

/** Rounds to microseconds. Further digits are clock noise. */
function inMicroseconds(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}

function asJson(value: unknown): string {
  return JSON.stringify(value);
}
