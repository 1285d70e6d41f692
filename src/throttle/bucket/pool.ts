/** A pool: one line of calls for several accounts, deployments or regions. Each call uses the member that is free first. */
import { isDeepStrictEqual } from "node:util";
import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import { isBaseUrl, readOptions, wholeNumber } from "../../core/input/options.ts";
import { assertArgumentCount } from "../../core/input/arguments.ts";
import type { RateInput } from "../../core/limits/rate.ts";
import { compilePolicy, type PolicyOptions } from "../../core/policy/policy.ts";
import {
  assertMemberNames,
  unknownMember,
  type MemberChanges,
  type MemberLimits,
  type PoolPolicyOptions,
} from "../../core/policy/pool.ts";
import type { Bucket, OwnedBucket } from "../bucket.ts";
import {
  readDrawOptions,
  readTryOptions,
  type AnyFunction,
  type CallOptions,
  type DrawOptions,
  type FetchFunction,
  type ResultOf,
  type RunOptions,
  type ThrottledFetch,
  type TryCall,
  type TryOptions,
} from "../call-options.ts";
import { mergeCosts, type Cost } from "../costs.ts";
import type { KeyedSlot, Slot } from "../slot/slot.ts";
import type { TryDecision } from "../try/decision.ts";
import {
  CALL_DEFAULTS_SHAPE,
  type CallDefaultsOptions,
  type SentCall,
  type SettleOfCall,
} from "../wrap/call-defaults.ts";
import { createFetch, type AddressRequest } from "../wrap/fetch.ts";
import { watchMembers } from "../wrap/member-outcomes.ts";
import { runOnce, throttle } from "../wrap/throttled.ts";
import type { BucketOptions } from "./bucket-options.ts";
import type { MemberState } from "./bucket-state.ts";
import { readConfigureOptions, type ConfigureOptions } from "./live-control.ts";

/** One member of a pool: its limits, and what a call needs to use it. */
export interface PoolMember<Value = unknown, Rate extends RateInput = RateInput>
  extends MemberLimits<Rate>, CallDefaultsOptions {
  /** What calls of the member use, such as the client of an account. It stays in this process. */
  readonly value?: Value | undefined;
  /**
   * The base URL of the member. `fetch` of the pool replaces the origin of each request by it, and puts its path before
   * that of the request.
   */
  readonly baseUrl?: string | URL | undefined;
  /** The headers that `fetch` of the pool sets in each request of the member, such as its credentials. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

type OnStoreDownOfPool = "refuse" | "wait";

/** The options of a pool: its members, and those of a bucket. Other limits of the pool apply to all members together. */
export interface PoolOptions<
  Value = unknown,
  Rate extends RateInput = RateInput,
  KeyRate extends RateInput = RateInput,
>
  extends
    Omit<BucketOptions<Rate, KeyRate>, "onStoreDown" | "breaker">,
    Omit<PoolPolicyOptions, "members"> {
  /** The members by name, from 1 to 32. Each call starts under the limits of one member. */
  readonly members: Readonly<Record<string, PoolMember<Value>>>;
  /**
   * Stops calls to a member while it is unreachable. The other members take its calls. Defaults to `{ failures: 1,
   * coolMs: 1_000, maxCoolMs: 1_000 }`.
   */
  readonly breaker?: BucketOptions["breaker"];
  /** What happens to calls while Redis does not reply: they are rejected, or wait. Defaults to `"refuse"`. */
  readonly onStoreDown?: OnStoreDownOfPool | undefined;
}

/** A slot of a pool. It is for a call to one member. */
export interface PoolSlot<Value = unknown> extends Slot {
  /** The name of the member. */
  readonly member: string;
  /** The `value` of the member. Undefined if this process has not declared the member. */
  readonly value: Value;
}

/** The decision of `tryDraw` of a pool. */
export type PoolDecision<Value = unknown> =
  | (Extract<TryDecision, { readonly allowed: true }> & { readonly slot: PoolSlot<Value> })
  | Extract<TryDecision, { readonly allowed: false }>;

/** A function whose calls wait for a slot of the pool. */
export type PoolThrottled<Args extends unknown[], Result> = ((
  ...args: Args
) => Promise<Awaited<Result>>) & {
  /** Returns the same function with other options for its calls. */
  with(options: DrawOptions): PoolThrottled<Args, Result>;
};

/** The option that `throttled` and `run` of a pool have in addition. */
export interface TriesOption {
  /**
   * The most times that the function runs for one call, each time with another member. It runs again if the account of
   * its member cannot be used, or if no connection was made, so that the call was not carried out. Set it only for
   * functions that make one request. Defaults to 1.
   */
  readonly tries?: number | undefined;
}

/** Calls to a pool, or to one of its members. */
export interface PoolCalls<Value = unknown> {
  /**
   * Waits for a slot; resolves when the call may start. Throws the same errors as `draw` of a bucket. The slot has the
   * `member` and its `value`.
   */
  draw(options?: DrawOptions): Promise<PoolSlot<Value>>;
  /**
   * Draws a slot if a member is free now. Never waits. The decision names the limits of the member that the slot is for,
   * or of the one that is free first.
   */
  tryDraw(options?: TryOptions): Promise<PoolDecision<Value>>;
  /**
   * Wraps a function. Each call waits for a slot, and then runs the function with the value of the slot's member, and
   * with the arguments: `pool.throttled((client, params) => client.send(params))`.
   */
  throttled<Args extends unknown[], Result>(
    fn: (value: Value, ...args: Args) => Result,
    options?: CallOptions<Args, ResultOf<Result>> & TriesOption,
  ): PoolThrottled<Args, Result>;
  /** Waits for a slot, and runs the function with the value of the slot's member: once, unless `tries` is above 1. */
  run<Result>(
    fn: (value: Value) => Result,
    options?: RunOptions<Result> & TriesOption,
  ): Promise<Awaited<Result>>;
  /**
   * A `fetch` that waits for a slot before each request. It sends the request to the base URL of the slot's member, with
   * its headers. Another member may get the request after a refusal such as a 429, if the account of its member cannot be
   * used, or if no connection was made. `fetch.with({ tries: 1 })` turns that off.
   */
  readonly fetch: ThrottledFetch;
}

/** One member of a pool, for calls that no other member may take. They wait in the line of the pool. */
export interface MemberCalls<Value = unknown> extends PoolCalls<Value> {
  readonly name: string;
  readonly value: Value;
}

/** A policy of a pool for `configure`: each given part replaces that part. `null` removes a member. */
export interface PoolChange extends PolicyOptions, Omit<PoolPolicyOptions, "members"> {
  readonly members?: MemberChanges | undefined;
}

type Delegated =
  | "on"
  | "off"
  | "pause"
  | "resume"
  | "undo"
  | "budgets"
  | "grant"
  | "restore"
  | "peek"
  | "status"
  | "history";

/**
 * Several accounts, deployments or regions that take calls of one line, shared by all replicas. Each call uses the member
 * that is free first. A refusal by a member slows only this member down.
 */
export interface Pool<Value = unknown> extends PoolCalls<Value>, Pick<Bucket, Delegated> {
  readonly name: string;
  /** The number of callers in this process that wait for a slot. */
  readonly waiting: number;
  /**
   * Returns one member, for calls that only it may take.
   *
   * @throws {@link InvalidOptionError} when this process has not declared the member.
   */
  member(name: string): MemberCalls<Value>;
  /** Returns the members in force and their state over all replicas. */
  members(): Promise<readonly MemberState[]>;
  /**
   * Adds a member for all replicas, or replaces its limits. A process uses the member once it has called this method
   * too, or has declared the member in the options.
   *
   * As for {@link Bucket.configure}, the changed members override those in the code. The override ends by itself after
   * `forMs`, or when a later change restores the members of the code.
   *
   * @throws {@link InvalidOptionError} when the limits can never work, or when the pool has too many members. The methods
   * below throw it for an unknown member.
   * @throws {@link StoreUnavailableError} when Redis did not reply in time. The methods below throw this error too.
   */
  addMember(name: string, member: PoolMember<Value>, options?: ConfigureOptions): Promise<void>;
  /** Stops new calls to a member, for all replicas. Calls that have started go on. */
  drainMember(name: string, options?: ConfigureOptions): Promise<void>;
  /** Lets calls use a drained member again. */
  undrainMember(name: string, options?: ConfigureOptions): Promise<void>;
  /**
   * Removes a member for all replicas. Calls that have started go on.
   *
   * @throws {@link InvalidOptionError} when it is the last member.
   */
  removeMember(name: string, options?: ConfigureOptions): Promise<void>;
  /** Changes the policy in force, as `configure` of a bucket does. `"code"` puts the declared members in force. */
  configure(policy: PoolChange | "code", options?: ConfigureOptions): Promise<void>;
}

const MEMBER_ERROR = { error: 'give its limits, such as { rate: "6/min" }' };
const HEADERS = z
  .record(z.string(), z.string(), { error: "give the headers by name" })
  .refine(areHeaders, {
    error: "give names and values that a request can send, in ASCII",
  });
const OF_PROCESS = z.object({
  value: z.unknown().optional(),
  baseUrl: z
    .custom<string | URL>((value) => isBaseUrl(String(value)), {
      error:
        'give a URL with http or https, without a user, query and hash, such as "https://east.example.com"',
    })
    .optional(),
  headers: HEADERS.optional(),
  ...CALL_DEFAULTS_SHAPE,
});
const TRIES = z.looseObject({ tries: wholeNumber(1, 32, "tries").optional() });
const POOL_OPTIONS = z.looseObject({
  members: z.record(z.string(), z.looseObject({}, MEMBER_ERROR), {
    error: 'give members by name, such as { east: { rate: "6/min" } }',
  }),
  onStoreDown: z.enum(["refuse", "wait"], { error: 'give "refuse" or "wait"' }).optional(),
});

/**
 * Other members take the calls of an unreachable one, so its breaker opens at the first failure. It stays open for a
 * second at a time, so that the member is used again soon.
 */
const BREAKER_OF_MEMBERS = { failures: 1, coolMs: 1_000, maxCoolMs: 1_000 };

/** What this process knows of a member beyond its limits. */
interface KnownMember extends CallDefaultsOptions {
  readonly value?: unknown;
  readonly baseUrl?: string | URL | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** The members that this process has declared, by name. Their limits are part of the policy. */
export type KnownMembers = Map<string, KnownMember>;

/** Separates the options of a pool's bucket from what only this process uses of each member. */
export function readPoolOptions(
  where: string,
  given: unknown,
): { readonly options: BucketOptions; readonly known: KnownMembers } {
  assertMemberNames(where, given);
  const { members: all, ...others } = readOptions(where, POOL_OPTIONS, given);
  const known: KnownMembers = new Map();
  const members: Record<string, MemberLimits> = {};
  for (const [name, member] of Object.entries(all)) {
    const [limits, own] = readMember(where, `members.${name}`, member);
    members[name] = limits;
    known.set(name, own);
  }
  const calls = defaultsOf(others as CallDefaultsOptions, known);
  const { breaker = BREAKER_OF_MEMBERS } = others as BucketOptions;
  return { options: { ...others, ...calls, breaker, members } as BucketOptions, known };
}

function readMember(
  where: string,
  path: string,
  member: object,
): readonly [limits: MemberLimits, own: KnownMember] {
  const { value, baseUrl, headers, cost, settle, ...limits } = member as PoolMember;
  const given = Object.entries({ baseUrl, headers, cost, settle });
  const own = Object.fromEntries(given.filter(([, each]) => each !== undefined));
  const { error } = OF_PROCESS.safeParse(own);
  const [issue] = error?.issues ?? [];
  if (issue !== undefined) {
    const [option] = issue.path;
    const facts = { where, option: `${path}.${String(option)}`, value: own[String(option)] };
    throw new InvalidOptionError({ ...facts, remedy: issue.message });
  }
  return [limits, { value, ...own }];
}

/** Returns the costs and settlements of all calls: those of the pool, or else those of the members. */
function defaultsOf(ofPool: CallDefaultsOptions, known: KnownMembers): CallDefaultsOptions {
  const members = [...known.values()];
  const costs = [...new Set(members.flatMap(({ cost }) => (cost === undefined ? [] : [cost])))];
  const [first] = costs;
  const cost =
    ofPool.cost ??
    (costs.length < 2
      ? first
      : async (call: SentCall) => {
          let all: Cost | undefined;
          for (const each of costs) {
            all = mergeCosts(all, typeof each === "function" ? await each(call) : each);
          }
          return all;
        });
  const settles = members.some(({ settle }) => settle !== undefined);
  const byMember: SettleOfCall = (result, call) =>
    known.get(call.member ?? "")?.settle?.(result, call);
  const settle = ofPool.settle ?? (settles ? byMember : undefined);
  return { ...(cost !== undefined && { cost }), ...(settle !== undefined && { settle }) };
}

type PoolCallOptions = CallOptions & TriesOption;

/** Separates `tries` from the options that the calls of all buckets have. */
function withoutTries<Options extends object>(
  where: string,
  options: (Options & TriesOption) | undefined,
): readonly [own: Options | undefined, tries: number] {
  if (typeof options !== "object" || options === null || !("tries" in options)) return [options, 1];
  const { tries = 1, ...own } = readOptions(where, TRIES, options);
  return [own as Options, tries];
}

/** Creates the pool of a bucket that has members. */
export function createPool(bucket: OwnedBucket, known: KnownMembers): Pool {
  const { name: pool } = bucket;
  const isKnown = (member: string): boolean => known.has(member);
  const watched = watchMembers(bucket, { includes: isKnown, hasAccount: isKnown });

  function callsOf(of: OwnedBucket): PoolCalls {
    const withValue = (slot: KeyedSlot): PoolSlot =>
      // The value may hold credentials, so it is not among the properties that a log or JSON shows.
      Object.defineProperty(slot as KeyedSlot & PoolSlot, "value", { value: valueOf(slot) });
    const leading = (slot: KeyedSlot): readonly unknown[] => [valueOf(slot)];
    const wrapped = (fn: AnyFunction, options?: PoolCallOptions): unknown => {
      const [own, tries] = withoutTries("throttled()", options);
      return throttle(of, fn, own, { leading, tries });
    };
    return {
      async draw(options) {
        return withValue(await of.drawByHand(readDrawOptions("draw()", options ?? {})));
      },
      async tryDraw(options) {
        const decision = await of.tryByHand(readTryOptions("tryDraw()", options ?? {}));
        if (!decision.allowed) return decision;
        return { ...decision, slot: withValue(decision.slot as KeyedSlot) };
      },
      throttled: wrapped as PoolCalls["throttled"],
      run: (async (fn: AnyFunction, options?: RunOptions & TriesOption) => {
        const [own, tries] = withoutTries("run()", options);
        return runOnce(of, fn, own, { leading, tries });
      }) as PoolCalls["run"],
      fetch: createFetch(of, {}, addressAt),
    };
  }

  function valueOf({ member = "" }: Pick<KeyedSlot, "member">): unknown {
    return known.get(member)?.value;
  }

  const addressAt: AddressRequest = ({ member = "" }, input, init) => {
    const { baseUrl, headers } = known.get(member) ?? {};
    const isRequest = input instanceof Request;
    const url = isRequest ? input.url : input;
    const target = baseUrl === undefined ? url : urlAt(baseUrl, url);
    const sent = isRequest ? requestAt(target, input, init) : target;
    if (headers === undefined) return [sent, init];
    const all = new Headers(init.headers ?? (isRequest ? input.headers : undefined));
    for (const [header, value] of Object.entries(headers)) all.set(header, value);
    return [sent, { ...init, headers: all }];
  };

  /** The bucket for calls that only one member may take. */
  function bucketOf(member: string): OwnedBucket {
    return Object.assign(Object.create(watched) as OwnedBucket, {
      async reportOutcome(...given: Parameters<OwnedBucket["reportOutcome"]>) {
        return { ...(await watched.reportOutcome(...given)), takeover: undefined };
      },
      drawByHand: (options: Parameters<OwnedBucket["drawByHand"]>[0]) =>
        bucket.drawByHand({ ...options, member }),
      tryByHand: (options: Parameters<OwnedBucket["tryByHand"]>[0]) =>
        bucket.tryByHand({ ...options, member } as TryCall),
    });
  }

  function assertKnown(where: string, name: string): KnownMember {
    const found = known.get(name);
    if (found !== undefined) return found;
    const remedy = unknownMember(String(name), [...known.keys()]);
    throw new InvalidOptionError({ where, option: "name", value: name, remedy });
  }

  const costs = new Set([...known.values()].map(({ cost }) => cost));
  const settles = [...known.values()].some(({ settle }) => settle !== undefined);

  /** The pool reads the costs of calls before a member is chosen, so a later member adds no other ones. */
  function assertSameCalls(where: string, name: string, { cost, settle }: KnownMember): void {
    const isKnown = cost === undefined || bucket.calls?.cost === cost || costs.has(cost);
    const [option, value] = isKnown ? ["settle", settle] : ["cost", cost];
    if (isKnown && (settle === undefined || settles)) return;
    const remedy = "declare it in the options of the pool, or of a member that they have";
    throw new InvalidOptionError({ where, option: `${name}.${option}`, value, remedy });
  }

  function nameOf(where: string, name: unknown): string {
    if (typeof name === "string") return name;
    const remedy = 'give the name of the member first, such as "east"';
    throw new InvalidOptionError({ where, option: "name", value: name, remedy });
  }

  function assertMember(where: string, name: unknown, member: unknown): void {
    nameOf(where, name);
    if (typeof member === "object" && member !== null) return;
    throw new InvalidOptionError({
      where,
      option: String(name),
      value: member,
      remedy: MEMBER_ERROR.error,
    });
  }

  const at = (method: string): string => `pool("${pool}").${method}()`;

  /** Changes one member for all processes. `given` is its name as the caller gave it. */
  async function change(
    method: string,
    given: unknown,
    { to, options }: { readonly to: MemberLimits | null; readonly options: unknown },
  ): Promise<void> {
    const where = at(method);
    const policy = { members: { [nameOf(where, given)]: to } } as PolicyOptions;
    await bucket.configureAt(where, policy, options as ConfigureOptions);
  }

  const all: Pool = {
    name: pool,
    get waiting() {
      return bucket.waiting;
    },
    ...callsOf(watched),
    member(name) {
      const { value } = assertKnown(at("member"), name);
      return { name, value, ...callsOf(bucketOf(name)) };
    },
    members: () => bucket.members(),
    async addMember(name, member, options) {
      const where = at("addMember");
      assertMember(where, name, member);
      const [limits, own] = readMember(where, name, member);
      assertSameCalls(where, name, own);
      const read = readConfigureOptions(where, options);
      const [added] = compilePolicy(where, { members: { [name]: limits } }).pool!.members;
      const { policy } = await bucket.inForce();
      const found = policy.pool?.members.find((each) => each.name === name);
      // Each process that uses the member calls this. Only the first call changes the pool.
      const isSame = found?.isDrained === added!.isDrained;
      if (!isSame || !isDeepStrictEqual(found!.limits, added!.limits)) {
        const to = { ...limits, drained: added!.isDrained };
        await change("addMember", name, { to, options: read });
      }
      known.set(name, own);
      bucket.redraw();
    },
    drainMember: (name, options) => change("drainMember", name, { to: { drained: true }, options }),
    undrainMember: (name, options) =>
      change("undrainMember", name, { to: { drained: false }, options }),
    removeMember: (name, options) => change("removeMember", name, { to: null, options }),
    configure: (policy, options) => bucket.configure(policy as PolicyOptions, options),
    on: (event, listener, options) => bucket.on(event, listener, options),
    off: (event, listener) => bucket.off(event, listener),
    pause: (options) => bucket.pause(options),
    resume: (options) => bucket.resume(options),
    undo: (options) => bucket.undo(options),
    budgets: (options) => bucket.budgets(options),
    grant: (amounts, options) => bucket.grant(amounts, options),
    restore: (balances, options) => bucket.restore(balances, options),
    peek: (options) => bucket.peek(options),
    status: () => bucket.status(),
    history: (options) => bucket.history(options),
  };
  return withArgumentCount(all);
}

/** Makes the methods of a pool reject extra arguments. `fetch` checks its own arguments. */
function withArgumentCount(pool: Pool): Pool {
  return assertArgumentCount(pool, {
    throws: ["throttled", "member", "on", "off"],
    only: [
      "draw",
      "tryDraw",
      "throttled",
      "run",
      "member",
      "members",
      "addMember",
      "drainMember",
      "undrainMember",
      "removeMember",
      "configure",
      "pause",
      "resume",
      "undo",
      "budgets",
      "grant",
      "restore",
      "peek",
      "status",
      "history",
      "on",
      "off",
    ],
  });
}

function areHeaders(headers: Readonly<Record<string, string>>): boolean {
  try {
    return [...new Headers(headers)].length === Object.keys(headers).length;
  } catch {
    return false;
  }
}

/** Returns a request for another URL. If `init` has a body, that of the request may have been sent already. */
function requestAt(target: string | URL, request: Request, init: RequestInit): Request {
  if (init.body === undefined) return new Request(target, request);
  const { method, headers, redirect, signal } = request;
  return new Request(target, { method, headers, redirect, signal });
}

/** Returns a URL with the origin of a base, and with the path of the base before its own path. */
function urlAt(base: string | URL, input: Exclude<Parameters<FetchFunction>[0], Request>): URL {
  const at = new URL(base);
  const url = new URL(input, at);
  const prefix = at.pathname.replace(/\/$/, "");
  const isWithin = url.pathname === prefix || url.pathname.startsWith(`${prefix}/`);
  at.pathname = isWithin ? url.pathname : prefix + url.pathname;
  at.search = url.search;
  return at;
}
