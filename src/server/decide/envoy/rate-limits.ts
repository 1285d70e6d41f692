/**
 * Decides Envoy's requests. Each descriptor is a try. Either all tries of a request pass, or none.
 */
import { createHash } from "node:crypto";
import type { FastifyBaseLogger } from "fastify";
import { CostTooLargeError, InvalidOptionError } from "../../../core/errors.ts";
import { KEY } from "../../../core/input/options.ts";
import type { Key, NamedKeys } from "../../../core/key-path.ts";
import { fixedWindow } from "../../../core/policy/limit-makers.ts";
import type { PolicyOptions } from "../../../core/policy/policy.ts";
import type { Bucket, OwnedBucket } from "../../../throttle/bucket.ts";
import type { Cost } from "../../../throttle/costs.ts";
import { createLru } from "../../../throttle/lru.ts";
import type { LimitDecision, TryDecision } from "../../../throttle/try/decision.ts";
import { overWholeSeconds, rateLimitHeaders } from "../../../throttle/try/rate-limit-headers.ts";
import { assertMayBucket, type Access } from "../../access/access.ts";
import { HttpProblem } from "../../problem.ts";
import { giveBack } from "../draws.ts";
import type { FoundBuckets } from "../found-buckets.ts";
import {
  CODE,
  type CurrentLimit,
  type Descriptor,
  type DescriptorStatus,
  type RateLimitRequest,
  type RateLimitResponse,
} from "./messages.ts";
import type { DescriptorDraw, RateLimitDescriptor, ReadGrpcOptions } from "./options.ts";

export interface RateLimitParts {
  /** Declares a bucket for a limit that Envoy sets. */
  readonly declare: (name: string, policy: PolicyOptions) => Bucket;
  readonly found: FoundBuckets;
  readonly log: FastifyBaseLogger;
  readonly options: ReadGrpcOptions;
}

type OwnLimit = NonNullable<RateLimitDescriptor["limit"]>;

/** The result for one descriptor. */
interface Tried {
  readonly allowed: boolean;
  /**
   * The decision. Undefined if the descriptor has no limit, or costs more than its limit ever
   * allows.
   */
  readonly decision?: TryDecision;
  readonly cost?: Cost;
  /** True if the descriptor takes nothing, even if all descriptors pass. */
  readonly isProbe?: boolean;
}

export interface RateLimits {
  /**
   * @throws {@link InvalidOptionError} and other errors when the request can never be answered.
   * Nothing is taken then.
   */
  decide(request: RateLimitRequest, access: Access): Promise<RateLimitResponse>;
}

/** The most descriptors in a request, each of which is a try. HTTP has the same limit. */
const MOST_DESCRIPTORS = 1_000;
/** The most limits that Envoy may set, over all domains. Each of these limits is a bucket. */
const MOST_LIMITS = 1_000;
/** The units of limits, in the order of `RateLimitUnit` from 1. */
const UNITS = ["1s", "1min", "1h", "1d"] as const;
/**
 * The most bucket names that `warned` remembers. There is a bound, because clients may choose the
 * names.
 */
const MOST_WARNED = 1_000;

export function createRateLimits({ declare, found, log, options }: RateLimitParts): RateLimits {
  const warned = createLru<number>(MOST_WARNED);
  const ownLimits = new Map<string, OwnedBucket>();
  const drawOf = options.draw ?? (({ domain }): DescriptorDraw => ({ bucket: domain }));

  /**
   * Returns the bucket of a limit that Envoy sets for this domain. Each descriptor is a key of the
   * bucket.
   */
  function bucketOfLimit(domain: string, { requests, per }: OwnLimit): OwnedBucket {
    const name = `${domain} (${requests} each ${per})`;
    const known = ownLimits.get(name);
    if (known !== undefined) return known;
    if (ownLimits.size >= MOST_LIMITS) {
      const remedy = `Envoy has named ${MOST_LIMITS} other limits; declare buckets for them`;
      throw wrong("descriptors.limit", `${requests} each ${per}`, remedy);
    }
    const limits = [fixedWindow(requests, per)];
    const bucket = declare(name, { perKey: { limits } }) as OwnedBucket;
    ownLimits.set(name, bucket);
    return bucket;
  }

  async function tryOne(asked: RateLimitDescriptor, access: Access): Promise<Tried> {
    const draw = drawOf(asked);
    if (draw === undefined) return { allowed: true };
    const isProbe = asked.hits === 0;
    const { bucket: name, key, keys, cost = Math.max(1, asked.hits) } = draw;
    assertMayBucket(access, name);
    const limit = options.draw === undefined ? asked.limit : undefined;
    if (limit?.requests === 0) return { allowed: false };
    const bucket = limit ? bucketOfLimit(name, limit) : await bucketOf(name, found);
    if (bucket === undefined) {
      if (!warned.has(name)) log.warn({ bucket: name }, UNKNOWN_BUCKET);
      warned.set(name, 1);
      return { allowed: options.unknown === "allow" };
    }
    const own = options.draw === undefined ? keyOf(bucket, asked) : keyGiven({ key, keys });
    try {
      const decision = await bucket.tryDraw({ ...own, cost });
      if (!decision.allowed || !decision.slot.hasLease) {
        return { allowed: decision.allowed, decision, cost, isProbe };
      }
      giveBack(decision.slot, { cost }, { log });
    } catch (error) {
      // A descriptor with this cost can never pass.
      if (error instanceof CostTooLargeError) return { allowed: false };
      throw error;
    }
    throw new HttpProblem("ERR_NOT_SUPPORTED", hasLeases(name));
  }

  return {
    async decide({ domain, descriptors, hits }, access) {
      if (domain === "") throw wrong("domain", domain, "name a bucket");
      if (descriptors.length === 0) throw wrong("descriptors", [], "give at least one");
      if (descriptors.length > MOST_DESCRIPTORS) {
        const remedy = `give ${MOST_DESCRIPTORS} at most`;
        throw wrong("descriptors", `${descriptors.length} of them`, remedy);
      }
      const asked = descriptors.map((each) => readDescriptor(each, domain, hits));
      const settled = await Promise.allSettled(asked.map((each) => tryOne(each, access)));
      const tried = settled.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
      const mayPass = tried.length === settled.length && tried.every(({ allowed }) => allowed);
      for (const { decision, cost, isProbe } of tried) {
        if (decision?.allowed !== true || (mayPass && isProbe !== true)) continue;
        giveBack(decision.slot, { cost }, { log });
      }
      for (const each of settled) if (each.status === "rejected") throw each.reason;
      return {
        code: mayPass ? CODE.ok : CODE.overLimit,
        statuses: tried.map(statusOf),
        headers: headersOf(tried),
      };
    },
  };
}

const UNKNOWN_BUCKET = "Envoy asks for a bucket that no process has declared.";

function hasLeases(bucket: string): string {
  return (
    `Bucket ${JSON.stringify(bucket)} limits how many calls run at once, and Envoy does not say when one ends; ` +
    "leave out concurrency, or draw over HTTP."
  );
}

function readDescriptor(
  { entries, limit, hits: own, isRefund }: Descriptor,
  domain: string,
  hits: number,
): RateLimitDescriptor {
  if (entries.length === 0) throw wrong("descriptors.entries", [], "give at least one");
  const named = limit && readLimit(limit);
  if (!isRefund) return { domain, entries, limit: named, hits: own ?? hits };
  throw wrong("is_negative_hits", true, "leave it out; calls cannot be given back");
}

function readLimit({ requests, unit }: NonNullable<Descriptor["limit"]>): OwnLimit {
  const per = UNITS[unit - 1];
  if (per !== undefined) return { requests, per };
  throw wrong("descriptors.limit.unit", unit, "give SECOND, MINUTE, HOUR or DAY");
}

async function bucketOf(name: string, found: FoundBuckets): Promise<OwnedBucket | undefined> {
  try {
    return (await found.bucket(name)) as OwnedBucket;
  } catch (error) {
    if (error instanceof HttpProblem && error.status === 404) return undefined;
    throw error;
  }
}

interface TryKey {
  readonly key?: Key;
  readonly keys?: NamedKeys;
}

function keyOf({ policy }: OwnedBucket, { entries, limit }: RateLimitDescriptor): TryKey {
  // The limit applies to all entries of the descriptor together.
  if (limit !== undefined) {
    const pairs = entries.map(({ key, value }): [string, string] => [key, value]);
    return { key: nameOf(new URLSearchParams(pairs).toString()) };
  }
  const isNamed = policy.perKey?.names !== undefined;
  if (!isNamed) return { key: entries.map(({ value }) => nameOf(value)) };
  return { keys: Object.fromEntries(entries.map(({ key, value }) => [key, nameOf(value)])) };
}

/**
 * Hashes a value that is not a valid key. Clients choose some of these values, and Envoy lets a
 * call pass if the request fails.
 */
function nameOf(value: string): string {
  if (KEY.safeParse(value).success) return value;
  return `sha256-${createHash("sha256").update(value).digest("base64url")}`;
}

function keyGiven({ key, keys }: Pick<DescriptorDraw, "key" | "keys">): TryKey {
  return { ...(key === undefined ? {} : { key }), ...(keys === undefined ? {} : { keys }) };
}

function wrong(option: string, value: unknown, remedy: string): InvalidOptionError {
  return new InvalidOptionError({ where: "the request", option, value, remedy });
}

function statusOf({ allowed, decision }: Tried): DescriptorStatus {
  const code = allowed ? CODE.ok : CODE.overLimit;
  const limit = decision && bindingOf(decision);
  if (limit === undefined) return { code };
  const { remaining } = limit;
  const untilMs = allowed ? limit.resetAfterMs : decision!.retryAfterMs;
  const untilResetMs = Number.isFinite(untilMs) ? untilMs : undefined;
  return { code, limit: currentLimit(limit), remaining, untilResetMs };
}

/**
 * Returns the limit that rejected the call. If none did, returns the limit with the least
 * remaining.
 */
function bindingOf(decision: TryDecision): LimitDecision | undefined {
  const { limits, limitedBy } = decision;
  const refusing = limits.filter(
    ({ name, retryAfterMs }) => name === limitedBy && retryAfterMs > 0,
  );
  const among = refusing.length > 0 ? refusing : limits;
  const binding = among.toSorted((a, b) => a.remaining - b.remaining)[0];
  return binding && overWholeSeconds(binding, decision);
}

const UNITS_MS = [1_000, 60_000, 3_600_000, 86_400_000];

/**
 * Describes the limit by the window in which `remaining` is counted. Returns undefined if Envoy has
 * no unit for that window.
 */
function currentLimit({ name, capacity, windowMs }: LimitDecision): CurrentLimit | undefined {
  if (windowMs === undefined || !(windowMs > 0)) return undefined;
  const own = UNITS_MS.indexOf(windowMs);
  if (own !== -1) return { name, requestsPerUnit: capacity, unit: own + 1 };
  const counts = UNITS_MS.map((ms) => Math.round((capacity / windowMs) * ms * 1e6) / 1e6);
  const whole = counts.findIndex((count) => count >= 1 && Number.isInteger(count));
  const at = whole === -1 ? counts.length - 1 : whole;
  return { name, requestsPerUnit: counts[at]!, unit: at + 1 };
}

/**
 * Returns the headers for the descriptor with the longest rejection. If none is rejected, uses the
 * descriptor with the least remaining.
 */
function headersOf(tried: readonly Tried[]): Record<string, string> {
  const decisions = tried.flatMap(({ decision }) => (decision === undefined ? [] : [decision]));
  const [binding] = decisions.toSorted(
    (a, b) => b.retryAfterMs - a.retryAfterMs || a.remaining - b.remaining,
  );
  if (binding === undefined) return {};
  const headers = Object.entries(rateLimitHeaders(binding));
  return Object.fromEntries(headers.map(([name, value]) => [name.toLowerCase(), value]));
}
