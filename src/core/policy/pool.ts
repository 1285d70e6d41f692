/** The members of a pool: each call starts under the limits of one of them. */
import * as z from "zod";
import { InvalidOptionError } from "../errors.ts";
import { closest, KEY, LONGEST_MS, wholeNumber } from "../input/options.ts";
import { isMemberKey, memberKey } from "../key-path.ts";
import type { RateInput } from "../limits/rate.ts";
import { formatLimit, stepOf } from "../limits/registry.ts";
import type { Limit } from "../limits/rule.ts";
import { NO_POSITION, type KeyScope } from "../store.ts";
import type { LimitsOptions } from "./limit-makers.ts";

/** The limits of one member of a pool, such as an account or a deployment. */
export interface MemberLimits<Rate extends RateInput = RateInput> extends LimitsOptions<Rate> {
  /** True if the member gets no new calls. Calls that have started go on. Defaults to false. */
  readonly drained?: boolean | undefined;
}

/** The options of a policy that only pools have. */
export interface PoolPolicyOptions<Rate extends RateInput = RateInput> {
  /** The members by name, from 1 to 32. Each call starts under the limits of one member. */
  readonly members?: Readonly<Record<string, MemberLimits<Rate>>> | undefined;
  /**
   * Which member a call uses if several are free. `"spread"`: the one that is free first; among equals, the one that was
   * used least recently. A list of names: the first of them, and a later one only while the earlier ones are full.
   * Members that the list leaves out come last. Defaults to `"spread"`.
   */
  readonly prefer?: "spread" | readonly string[] | undefined;
  /** `"key"`: calls of one key use the same member while it is free within `stickyMs`. Defaults to no such rule. */
  readonly stickyBy?: "key" | undefined;
  /**
   * How much longer a call may wait for the member of its key than for another one, in ms. Only with `stickyBy`.
   * Defaults to 1,000.
   */
  readonly stickyMs?: number | undefined;
}

/** A change of a pool's members by name. `null` removes a member. */
export type MemberChanges = Readonly<Record<string, MemberLimits | null>>;

export interface Member {
  readonly name: string;
  readonly limits: readonly Limit[];
  readonly isDrained: boolean;
  /** The scope in which the member's limits have their state. */
  readonly scope: KeyScope;
  /** Members of a lower tier are used first. */
  readonly tier: number;
}

/** The members of a pool, and how a call's member is chosen. */
export interface PoolPolicy {
  readonly members: readonly Member[];
  readonly prefer: "spread" | readonly string[];
  /** How much longer a call waits for the member of its key, in µs. Undefined: keys have no member. */
  readonly stickyUs: number | undefined;
}

/** A pool in the text of a policy. */
export interface PoolText {
  readonly members: readonly {
    readonly name: string;
    readonly limits: readonly Limit[];
    readonly isDrained?: true | undefined;
  }[];
  readonly prefer?: readonly string[] | undefined;
  readonly stickyUs?: number | undefined;
}

/** The most members of a pool, because a script checks all of them for each call. */
const MOST_MEMBERS = 32;
const LONGEST_NAME = 40;
const DEFAULT_STICKY_MS = 1_000;
const PREFER_ERROR = { error: 'give "spread", or a list of member names' };

/**
 * The schemas of the options that only pools have.
 *
 * @internal
 */
export const POOL_SHAPE = {
  members: z.custom<MemberChanges>().optional(),
  prefer: z
    .union([z.literal("spread"), z.array(z.string(), PREFER_ERROR)], PREFER_ERROR)
    .optional(),
  stickyBy: z.literal("key", { error: 'give "key", or leave it out' }).optional(),
  stickyMs: wholeNumber(0, LONGEST_MS, "milliseconds").optional(),
};

interface PoolGiven extends Omit<PoolPolicyOptions, "members"> {
  readonly members?: MemberChanges | undefined;
}

/** Compiles the limits of one member. `path` is the name of its option. */
type CompileMember = (path: string, given: MemberLimits) => readonly Limit[];

interface CompilePool {
  /** The pool that the options change. */
  readonly under?: PoolPolicy | undefined;
  readonly compile: CompileMember;
  /** False if the options may change members that they do not declare. These are left out. */
  readonly isWhole: boolean;
}

/**
 * Reads the members of a pool, over those of `under`. Returns undefined if the options have no member and there is no
 * pool.
 *
 * @throws {@link InvalidOptionError} when a pool has no members or too many, or when `prefer` names an unknown member.
 */
export function compilePool(
  where: string,
  { members: changes, prefer: givenPrefer, stickyBy, stickyMs }: PoolGiven,
  { under, compile, isWhole }: CompilePool,
): PoolPolicy | undefined {
  const wrong = (option: string, value: unknown, remedy: string): InvalidOptionError =>
    new InvalidOptionError({ where, option, value, remedy });
  if (changes === undefined && under === undefined) {
    const given = Object.entries({ prefer: givenPrefer, stickyBy, stickyMs });
    const [option, value] = given.find((each) => each[1] !== undefined) ?? [];
    if (option === undefined || !isWhole) return undefined;
    throw wrong(option, value, "only a pool has this option; give members");
  }
  if (changes !== undefined && !isTable(changes)) {
    throw wrong("members", changes, 'give members by name, such as { east: { rate: "6/min" } }');
  }
  assertMemberNames(where, { members: changes });
  const limitsOf = new Map((under?.members ?? []).map((each) => [each.name, each]));
  for (const [name, given] of Object.entries(changes ?? {})) {
    const path = `members.${name}`;
    if (!KEY.safeParse(name).success || name.length > LONGEST_NAME) {
      throw wrong("members", name, `give members names of 1 to ${LONGEST_NAME} characters`);
    }
    const known = limitsOf.get(name);
    const isPart = given === null || (isTable(given) && Object.keys(given).join() === "drained");
    if (isPart && !isWhole && known === undefined) continue;
    if (given === null) {
      if (known === undefined)
        throw wrong("members", name, unknownMember(name, [...limitsOf.keys()]));
      limitsOf.delete(name);
      continue;
    }
    if (!isTable(given)) throw wrong(path, given, 'give its limits, such as { rate: "6/min" }');
    const { drained, ...limits } = given;
    if (drained !== undefined && typeof drained !== "boolean") {
      throw wrong(`${path}.drained`, drained, "give true or false");
    }
    const hasLimits = Object.values(limits).some((value) => value !== undefined);
    if (!hasLimits && known === undefined && under !== undefined) {
      throw wrong("members", name, unknownMember(name, [...limitsOf.keys()]));
    }
    const compiled = !hasLimits && known !== undefined ? known.limits : compile(path, limits);
    limitsOf.set(name, memberOf(name, compiled, drained ?? known?.isDrained ?? false));
  }
  const names = [...limitsOf.keys()];
  if (names.length === 0 && !isWhole) return undefined;
  if (names.length === 0) {
    throw wrong("members", changes, "a pool needs a member; keep one, or give one more");
  }
  if (names.length > MOST_MEMBERS) {
    throw wrong("members", names.length, `give at most ${MOST_MEMBERS} members`);
  }
  const prefer = givenPrefer ?? remaining(under?.prefer, names);
  if (prefer !== "spread" && isWhole) assertPrefer(where, prefer, names);
  const isSticky = stickyBy !== undefined || under?.stickyUs !== undefined;
  if (stickyMs !== undefined && !isSticky && isWhole) {
    throw wrong("stickyMs", stickyMs, 'keys have no member; give stickyBy: "key" too');
  }
  const given = stickyMs === undefined ? under?.stickyUs : stickyMs * 1_000;
  const stickyUs = isSticky ? (given ?? DEFAULT_STICKY_MS * 1_000) : undefined;
  return poolOf([...limitsOf.values()], prefer, stickyUs);
}

/**
 * Rejects a member named `__proto__`, which JavaScript may read as the prototype of the table. The member would be lost.
 *
 * @throws {@link InvalidOptionError} when the option `members` has such a name.
 */
export function assertMemberNames(where: string, given: unknown): void {
  const { members } = (given ?? {}) as { readonly members?: unknown };
  if (!isTable(members)) return;
  const prototype: unknown = Object.getPrototypeOf(members);
  const isPlain = prototype === null || Object.getPrototypeOf(prototype) === null;
  if (isPlain && !Object.hasOwn(members, "__proto__")) return;
  const remedy = "give the member another name, because JavaScript reads this one as a prototype";
  throw new InvalidOptionError({ where, option: "members", value: "__proto__", remedy });
}

function isTable(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Returns the preferred members that are left after others were removed. */
function remaining(
  prefer: PoolPolicy["prefer"] = "spread",
  names: readonly string[],
): PoolPolicy["prefer"] {
  if (prefer === "spread") return prefer;
  const left = prefer.filter((name) => names.includes(name));
  return left.length === 0 ? "spread" : left;
}

function assertPrefer(where: string, prefer: readonly string[], names: readonly string[]): void {
  const unknown = prefer.find((name) => !names.includes(name));
  const twice = prefer.find((name, index) => prefer.indexOf(name) < index);
  const value = unknown ?? twice ?? prefer;
  const wrong = (remedy: string): InvalidOptionError =>
    new InvalidOptionError({ where, option: "prefer", value, remedy });
  if (unknown !== undefined) throw wrong(unknownMember(unknown, names));
  if (twice !== undefined) throw wrong("name each member once");
  if (prefer.length === 0) throw wrong('name at least one member, or give "spread"');
}

/** Says what to do if a pool has no member of this name. */
export function unknownMember(name: string, names: readonly string[]): string {
  const near = closest(name, names);
  return `the pool has no such member; ${near === undefined ? `its members are ${names.join(", ")}` : `did you mean ${near}?`}`;
}

function memberOf(name: string, limits: readonly Limit[], isDrained: boolean): Member {
  const scope = { key: memberKey(name), limits, position: NO_POSITION };
  return { name, limits, isDrained, scope, tier: 0 };
}

function poolOf(
  members: readonly Member[],
  prefer: PoolPolicy["prefer"],
  stickyUs: number | undefined,
): PoolPolicy {
  const tierOf = (name: string): number => {
    if (prefer === "spread") return 0;
    const at = prefer.indexOf(name);
    return at === -1 ? prefer.length : at;
  };
  const ranked = members.map((member) => Object.freeze({ ...member, tier: tierOf(member.name) }));
  return Object.freeze({ members: Object.freeze(ranked), prefer, stickyUs });
}

/** Returns a pool as it is stored in the text of a policy. */
export function poolText(pool: PoolPolicy | undefined): PoolText | undefined {
  if (pool === undefined) return undefined;
  const members = pool.members.map(({ name, limits, isDrained }) => ({
    name,
    limits,
    ...(isDrained && { isDrained }),
  }));
  return {
    members,
    prefer: pool.prefer === "spread" ? undefined : pool.prefer,
    stickyUs: pool.stickyUs,
  };
}

export function readPoolText(text: PoolText | undefined): PoolPolicy | undefined {
  if (text === undefined) return undefined;
  const members = text.members.map(({ name, limits, isDrained }) =>
    memberOf(name, limits, isDrained === true),
  );
  return poolOf(members, text.prefer ?? "spread", text.stickyUs);
}

/** Returns the scope of a member, from the encoded key of that scope. Undefined if the pool has no such member. */
export function memberScopeOf(pool: PoolPolicy | undefined, key: string): KeyScope | undefined {
  return isMemberKey(key) ? pool?.members.find(({ scope }) => scope.key === key)?.scope : undefined;
}

/**
 * Says why no member takes a call, as the cause of its wait: `"a drain of all members"`. Undefined if a member takes it.
 * `costs` are those under the limits of all members. `only` is the name of the only member that the call may use.
 * `usesMember` returns true for a member that this process has declared.
 */
export function whyNoMember(
  { members }: PoolPolicy,
  call: { readonly costs: readonly number[]; readonly only?: string | undefined },
  usesMember: (name: string) => boolean,
): string | undefined {
  let after = 0;
  const large = members.filter(({ limits }) => {
    const own = call.costs.slice(after, (after += limits.length));
    return limits.every(({ capacity }, index) => (own[index] ?? 0) <= capacity);
  });
  const able = large.filter(({ name }) => call.only === undefined || name === call.only);
  if (able.some(({ name, isDrained }) => !isDrained && usesMember(name))) return undefined;
  if (able.some(({ isDrained }) => !isDrained)) return "members that this process has not declared";
  if (call.only !== undefined) return `a drain (member ${call.only})`;
  const isAll = able.length === members.length;
  return isAll ? "a drain of all members" : "a drain of all members that allow its cost";
}

/** Formats the members for errors and warnings: `"east 6/min, west 6/min"`. */
export function formatPool({ members }: PoolPolicy): string {
  return members
    .map(({ name, limits, isDrained }) => {
      const limited = limits.map(formatLimit).join(" + ");
      return `${name} ${limited}${isDrained ? " (drained)" : ""}`;
    })
    .join(", ");
}

/**
 * Returns the index of the member that a key uses, by weighted rendezvous hashing (Thaler and Ravishankar, 1998). If
 * members come or go, only the keys of these members move. Faster members have more keys.
 */
export function memberOfKey({ members }: PoolPolicy, key: string): number {
  const weights = weightsOf(members);
  let best = -1;
  let bestScore = -Infinity;
  for (const [index, { name, isDrained }] of members.entries()) {
    if (isDrained) continue;
    const score = weights[index]! / -Math.log(hashOf(`${name}\n${key}`));
    if (score > bestScore) [best, bestScore] = [index, score];
  }
  return best;
}

/** Returns the rate of each member in a unit that all members limit; 1 for each if there is no such unit. */
function weightsOf(members: readonly Member[]): readonly number[] {
  const rateOf = ({ limits }: Member, unit: string): number => {
    const step = stepOf(
      limits,
      limits.map((limit) => (limit.unit === unit ? 1 : 0)),
    );
    return 1 / step;
  };
  for (const { unit } of members[0]!.limits) {
    const rates = members.map((member) => rateOf(member, unit));
    if (!rates.includes(Infinity)) return rates;
  }
  return members.map(() => 1);
}

/** Returns a number between 0 and 1 that looks random (FNV-1a, then the last step of MurmurHash3). */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (((hash ^ (hash >>> 16)) >>> 0) + 0.5) / 2 ** 32;
}
