/** Compiles per-key limits. Paths have limits by level; several keys side by side have limits by name. */
import { InvalidOptionError } from "../errors.ts";
import {
  headsOfText,
  isMemberKey,
  isOfNames,
  levelsOfText,
  memberOfText,
  MOST_LEVELS,
  namedOf,
  nameOfNamedKey,
  namesOfText,
  textsOfNamedKeys,
  valueOfNamedKey,
} from "../key-path.ts";
import type { RateInput } from "../limits/rate.ts";
import { formatLimit } from "../limits/registry.ts";
import type { Limit } from "../limits/rule.ts";
import { closest, KEY } from "../input/options.ts";
import { NO_POSITION, type KeyScope } from "../store.ts";
import {
  compileKeyLimits,
  fixedLimits,
  isTiers,
  pathOf,
  type Compile,
  type CompiledLimits,
  type KeyLimits,
} from "./key-limits.ts";
import { memberScopeOf, type PoolPolicy } from "./pool.ts";
import { partsOf, type PartText, type PerKeyText } from "./per-key-text.ts";

/**
 * Limits that apply to each key separately. Three forms are possible:
 *
 * - one set of limits, which applies to the first name of a call's `key`.
 * - a list with one set of limits for each level of a path.
 * - a table with one set of limits for each name, for calls with several `keys`.
 */
export type PerKey<Rate extends RateInput = RateInput> =
  | KeyLimits<Rate>
  | PerLevel<Rate>
  | PerName<Rate>;

/**
 * Per-key limits by level, the widest first. The first entry applies to the first name of a path, the second entry to
 * the first two names. An empty entry sets no limit.
 */
export type PerLevel<Rate extends RateInput = RateInput> = readonly (
  | KeyLimits<Rate, readonly string[]>
  | undefined
)[];

/** Limits for calls with several `keys` side by side: one entry for each key name. */
export type PerName<Rate extends RateInput = RateInput> = {
  readonly [name: string]: KeyLimits<Rate>;
  /** Excludes lists from this type, because functions in a list receive paths. */
  readonly [index: number]: never;
};

/** Key names that are not allowed, because they have another meaning in options or reports. */
const OF_LIMITS: readonly string[] = ["rate", "burst", "concurrency", "limits", "tiers", "tierOf"];
const OF_ANSWERS: readonly string[] = ["bucket", "key", "second", "minute", "hour", "day", "month"];
const RESERVED: readonly string[] = [...OF_LIMITS, ...OF_ANSWERS];
/** The longest key name. Headers and logs show key names. */
const LONGEST_NAME = 40;

/** The owner of a limit, as reports show it. The same level or name of a policy always has the same owner object. */
export interface LimitOwner {
  /** `"bucket"`, `"key"`, or the name of a named key. */
  readonly scope: string;
  /** The index of the name in a path: 0 is the first. Undefined for limits of all keys, and for named keys. */
  readonly level: number | undefined;
  /** The text that reports append to the name of a limit if several levels or names have limits: `" (level 1)"`. */
  readonly suffix: string;
}

const OF_ALL: LimitOwner = Object.freeze({ scope: "bucket", level: undefined, suffix: "" });

/** Compiled per-key limits. */
export interface KeyPolicy {
  /**
   * Returns the scopes of a key that have limits, the widest first. Their wait positions are empty.
   *
   * @throws {@link InvalidOptionError} when the limits can never work, when a tier is not in its table, or when the key
   * has the wrong form (a path or named keys).
   */
  readonly scopesOf: (key: string) => readonly KeyScope[];
  /** The limits, if there is only one level and all keys have the same limits. */
  readonly fixed: readonly Limit[] | undefined;
  /** All limits that any key may have. Undefined if a function decides. */
  readonly all: readonly Limit[] | undefined;
  /** True if some limits are functions or tiers, which only this process knows. */
  readonly isLocal: boolean;
  /** The names of the keys side by side. Undefined if keys are paths. */
  readonly names: readonly string[] | undefined;
  /** The limits of each level or name. `owners` has the same order. */
  readonly parts: readonly CompiledLimits[];
  readonly owners: readonly LimitOwner[];
  /** Returns the owner of the limits of one scope. */
  readonly ownerOf: (scopeKey: string) => LimitOwner;
  /**
   * The per-key limits as stored in Redis, where other replicas read them. `true` stands for limits that only this
   * process knows, such as the results of a function.
   */
  readonly text: PerKeyText;
  /** Returns the arguments that limit functions receive for a path. */
  readonly viewOf: ViewOf | undefined;
}

/** The part of a policy that contains the limits of keys and of the members of a pool. */
type OfKeys = { readonly perKey: KeyPolicy | undefined; readonly pool?: PoolPolicy | undefined };

const NO_SCOPES: readonly KeyScope[] = [];

/**
 * Returns the scopes of a key that have limits, the widest first. Their wait positions are empty. The text of a member
 * of a pool stands for the scope of that member.
 */
export function scopesOf(
  { perKey, pool }: OfKeys,
  key: string | undefined,
  where = "a call",
): readonly KeyScope[] {
  if (key === undefined) return NO_SCOPES;
  if (isMemberKey(key)) {
    const scope = memberScopeOf(pool, key);
    return scope === undefined ? NO_SCOPES : [scope];
  }
  if (perKey !== undefined) return perKey.scopesOf(key);
  if (isOfNames(key)) throw otherKind(where, key, "the bucket has no perKey with names");
  return NO_SCOPES;
}

/** Returns the per-key limits of a key, in the order of its scopes. Returns an empty list without a key. */
export function keyLimitsOf(policy: OfKeys, key: string | undefined): readonly Limit[] {
  return scopesOf(policy, key).flatMap(({ limits }) => limits);
}

/**
 * Returns the scope of the whole key. Returns undefined if only prefixes of the key have limits, and for several keys
 * side by side.
 */
export function ownScopeOf(policy: OfKeys, key: string, where?: string): KeyScope | undefined {
  return scopesOf(policy, key, where).find((scope) => scope.key === key);
}

/** Returns the owner of each limit of a call: first for the shared limits, then for the limits of its scopes. */
export function ownersOfLimits(
  policy: OfKeys & { readonly limits: readonly Limit[] },
  scopes: readonly KeyScope[],
): readonly LimitOwner[] {
  const ofKeys = scopes.flatMap(({ key, limits }) => limits.map(() => ownerOf(policy, key)));
  return [...policy.limits.map(() => OF_ALL), ...ofKeys];
}

/** The owners of the limits of members, by the name of the member. */
const memberOwners = new Map<string, LimitOwner>();

function ownerOf({ perKey }: OfKeys, scopeKey: string): LimitOwner {
  const member = memberOfText(scopeKey);
  if (member === undefined) return perKey!.ownerOf(scopeKey);
  const owner = memberOwners.get(member) ?? {
    scope: "member",
    level: undefined,
    suffix: ` (member ${member})`,
  };
  memberOwners.set(member, owner);
  return owner;
}

/** The scope that a downstream's rejection refers to. */
export interface RejectionTarget {
  /** `"bucket"`, `"key"`, or the name of one of several keys. */
  readonly scope: string | undefined;
  /** The index of a name in a path; 0 is the first. Defaults to the narrowest name with limits. */
  readonly level?: number | undefined;
}

const WHOLE_BUCKET: readonly undefined[] = [undefined];

/**
 * Returns the scopes that a rejection by the downstream refers to. Undefined stands for the whole bucket, which also
 * applies to a key without separate limits. If the response does not name one of several named keys, the function
 * returns the scopes of all of them.
 */
export function scopesOfRejection(
  policy: OfKeys,
  key: string | undefined,
  { scope: named, level }: RejectionTarget,
): readonly (KeyScope | undefined)[] {
  const scopes = named === "bucket" ? [] : scopesOf(policy, key);
  if (scopes.length === 0) return WHOLE_BUCKET;
  // A member is an account, so its rejection does not concern the other members.
  if (key !== undefined && isMemberKey(key)) return scopes;
  const { names, ownerOf } = policy.perKey!;
  if (names !== undefined) {
    const found = scopes.find(({ key: each }) => ownerOf(each).scope === named);
    return found === undefined ? scopes : [found];
  }
  if (level === undefined) return [scopes.at(-1)];
  return [scopes.findLast(({ key: each }) => ownerOf(each).level! <= level)];
}

/** Formats per-key limits for errors and warnings: `"5/s"`, `"20/s (level 0), 2/s (level 1)"`. */
export function formatPerKey(perKey: KeyPolicy): string {
  const parts = perKey.parts.map(({ fixed }, index) => {
    const limits = fixed === undefined ? "by its tier" : fixed.map(formatLimit).join(" + ");
    return limits === "" ? "" : limits + perKey.owners[index]!.suffix;
  });
  return parts.filter((part) => part !== "").join(", ");
}

export function compilePerKey(where: string, given: PerKey, compile: Compile): KeyPolicy {
  if (Array.isArray(given)) return compileLevels(where, given as PerLevel, compile);
  if (isByName(given)) return compileNames(where, given, compile);
  const only = compileKeyLimits(where, "perKey", given as KeyLimits, (path, each) =>
    compile(path, each, { wider: [], isOneOfMany: false }),
  );
  return ofLevels(where, [only], firstNames);
}

function compileLevels(where: string, given: PerLevel, compile: Compile): KeyPolicy {
  if (given.length === 0 || given.length > MOST_LEVELS) {
    const remedy = `give the limits of one to ${MOST_LEVELS} levels, the widest first`;
    throw new InvalidOptionError({ where, option: "perKey", value: given, remedy });
  }
  const wider: Limit[] = [];
  const levels = Array.from(given, (each, level) => {
    if (each === undefined) return fixedLimits([]);
    const beside = { wider: [...wider], isOneOfMany: true };
    const part = compileKeyLimits(where, `perKey[${level}]`, each as KeyLimits, (path, limits) =>
      compile(path, limits, beside),
    );
    wider.push(...(part.fixed ?? []));
    return part;
  });
  return ofLevels(where, levels);
}

/** True if the table contains limits by key name, and no name in it is the name of an option. */
function isByName(given: PerKey): given is PerName {
  if (typeof given !== "object" || given === null || isTiers(given)) return false;
  const entries = Object.entries(given);
  const isLimits = (value: unknown): boolean =>
    typeof value === "function" || (typeof value === "object" && value !== null);
  return (
    entries.length > 0 &&
    entries.every(
      ([name, value]) => !OF_LIMITS.includes(name) && isLimits(value) && !Array.isArray(value),
    )
  );
}

function compileNames(where: string, given: PerName, compile: Compile): KeyPolicy {
  const entries = Object.entries(given);
  if (entries.length > MOST_LEVELS) {
    const remedy = `give the limits of at most ${MOST_LEVELS} named keys`;
    throw new InvalidOptionError({ where, option: "perKey", value: given, remedy });
  }
  const parts = entries.map(([name, limits]) => {
    const option = pathOf("perKey", name, "");
    const isGood = KEY.safeParse(name).success && name.length <= LONGEST_NAME;
    if (!isGood || RESERVED.includes(name)) {
      const remedy = `give keys names of 1 to ${LONGEST_NAME} characters, and none of ${RESERVED.join(", ")}, which mean something else`;
      throw new InvalidOptionError({ where, option, value: limits, remedy });
    }
    const part = compileKeyLimits(where, option, limits, (path, each) =>
      compile(path, each, { wider: [], isOneOfMany: true }),
    );
    return [name, part] as const;
  });
  return ofNames(where, parts);
}

/** Returns the arguments that the limit functions of each level receive for a path. */
type ViewOf = (names: readonly string[]) => readonly unknown[];

/** The limit function of each level receives all names up to that level. */
const wholePaths: ViewOf = (names) =>
  names.map((_, level) => Object.freeze(names.slice(0, level + 1)));
/** If there is a single level without a list, its limit function receives only the name. */
const firstNames: ViewOf = (names) => names;

function ofLevels(
  where: string,
  parts: readonly CompiledLimits[],
  viewOf: ViewOf = wholePaths,
): KeyPolicy {
  const [first] = parts;
  const owners = parts.map((_, level): LimitOwner => {
    const suffix = parts.length === 1 ? "" : ` (level ${level})`;
    return Object.freeze({ scope: "key", level, suffix });
  });
  const isFixed = parts.every(({ fixed }) => fixed !== undefined);
  return {
    scopesOf(key) {
      if (isOfNames(key)) throw otherKind(where, key, "perKey of the bucket has no names");
      const heads = headsOfText(key).slice(0, parts.length);
      const views = isFixed ? [] : viewOf(namesOfText(key));
      const scopes: KeyScope[] = [];
      for (const [level, head] of heads.entries()) {
        const limits = parts[level]!.limitsOf(views[level] as never);
        if (limits.length > 0) scopes.push({ key: head, limits, position: NO_POSITION });
      }
      return scopes;
    },
    ...common(parts),
    owners,
    ownerOf: (scopeKey) => owners[levelsOfText(scopeKey) - 1]!,
    fixed: parts.length === 1 ? first!.fixed : undefined,
    names: undefined,
    text: parts.length === 1 ? partText(first!) : { levels: parts.map(partText) },
    viewOf,
  };
}

function ofNames(
  where: string,
  entries: readonly (readonly [name: string, part: CompiledLimits])[],
): KeyPolicy {
  const names = entries.map(([name]) => name);
  const places = new Map(names.map((name, place) => [name, place]));
  const owners = names.map((scope): LimitOwner => {
    return Object.freeze({ scope, level: undefined, suffix: ` (${scope})` });
  });
  return {
    scopesOf(key) {
      if (!isOfNames(key)) throw otherKind(where, key, `perKey has the names ${names.join(", ")}`);
      const texts: (string | undefined)[] = [];
      for (const text of textsOfNamedKeys(key)) {
        const place = places.get(nameOfNamedKey(text));
        if (place === undefined) throw unknownName(where, text, names);
        texts[place] = text;
      }
      const scopes: KeyScope[] = [];
      for (const [place, text] of texts.entries()) {
        if (text === undefined) continue;
        const limits = entries[place]![1].limitsOf(valueOfNamedKey(text) as never);
        if (limits.length > 0) scopes.push({ key: text, limits, position: NO_POSITION });
      }
      return scopes;
    },
    ...common(entries.map(([, part]) => part)),
    owners,
    ownerOf: (scopeKey) => owners[places.get(nameOfNamedKey(scopeKey))!]!,
    fixed: undefined,
    names,
    text: { names: entries.map(([name, part]) => [name, partText(part)] as const) },
    viewOf: undefined,
  };
}

function common(parts: readonly CompiledLimits[]): Pick<KeyPolicy, "all" | "isLocal" | "parts"> {
  const all = parts.map((part) => part.all);
  return {
    all: all.includes(undefined) ? undefined : (all as (readonly Limit[])[]).flat(),
    isLocal: parts.some(({ fixed }) => fixed === undefined),
    parts,
  };
}

function partText({ fixed }: CompiledLimits): PartText {
  return fixed ?? true;
}

function unknownName(where: string, text: string, names: readonly string[]): InvalidOptionError {
  const [name, value] = [nameOfNamedKey(text), valueOfNamedKey(text)];
  const near = closest(name, names);
  const hint = near === undefined ? `the names are ${names.join(", ")}` : `did you mean ${near}?`;
  const remedy = `perKey has no such name; ${hint}`;
  return new InvalidOptionError({ where, option: pathOf("keys", name, ""), value, remedy });
}

/** Creates the error for a path where named keys are expected, or for named keys where a path is expected. */
function otherKind(where: string, key: string, why: string): InvalidOptionError {
  const { key: path, keys } = namedOf(key);
  const [option, other] = keys === undefined ? ["key", "keys"] : ["keys", "key"];
  const remedy = `${why}; give ${other} instead`;
  return new InvalidOptionError({ where, option, value: keys ?? path, remedy });
}

/**
 * Reads the per-key limits that another replica wrote. Functions and tiers come from this process. Names that exist
 * only in this process have no limits. Returns undefined if this process cannot apply the text.
 */
export function readPerKeyText(
  where: string,
  text: PerKeyText,
  own: KeyPolicy | undefined,
): KeyPolicy | undefined {
  const { names, parts: texts } = partsOf(text);
  const isSameKind = (own?.names === undefined) === (names === undefined);
  const parts = texts.map((part, level) => {
    if (part !== true) return fixedLimits(part);
    const at = names === undefined ? level : (own?.names?.indexOf(names[level]!) ?? -1);
    const mine = isSameKind ? own?.parts[at] : undefined;
    return mine?.fixed === undefined ? mine : undefined;
  });
  if (parts.includes(undefined)) return undefined;
  const known = parts as CompiledLimits[];
  // If the declared functions take only the first name, they receive a string.
  if (names === undefined) return text === true ? own : ofLevels(where, known, own?.viewOf);
  const more = (own?.names ?? []).filter((name) => !names.includes(name));
  const all = [...names, ...more];
  return ofNames(
    where,
    all.map((name, index) => [name, known[index] ?? fixedLimits([])] as const),
  );
}
