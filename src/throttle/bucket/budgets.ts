/**
 * `budgets`, `grant` and `restore` read and change the balances of budgets, over all replicas. Changes are recorded in
 * the change log.
 */
import * as z from "zod";
import { ClosedError, InvalidOptionError } from "../../core/errors.ts";
import { oneKey, KEY_SHAPE, type KeyGiven } from "../../core/input/key-options.ts";
import { readOptional, readOptions, UNIT } from "../../core/input/options.ts";
import { TEXT, WHO_AND_WHY, type WhoAndWhy } from "../../core/input/who-and-why.ts";
import { memberKey, memberOfText, namedOf, type Key, type NamedKeys } from "../../core/key-path.ts";
import { memberScopeOf, unknownMember } from "../../core/policy/pool.ts";
import {
  budgetName,
  formatBudgetPeriod,
  MILLIONTHS,
  MOST_UNITS,
  readBudgetPeriod,
  rollingDaysOf,
  toMillionths,
  unitsIn,
} from "../../core/limits/budget.ts";
import { formatLimit } from "../../core/limits/registry.ts";
import type { Limit } from "../../core/limits/rule.ts";
import { budget } from "../../core/policy/limit-makers.ts";
import { scopesOf } from "../../core/policy/per-key.ts";
import {
  asFarAsKnown,
  formatPolicy,
  UNKNOWN_POLICY,
  type Policy,
} from "../../core/policy/policy.ts";
import { createChangeLog, type Inverse } from "../../core/stores/insight/change-log.ts";
import type { Grant, KeptBucketChange, SteeredState } from "../../core/stores/insight/changes.ts";
import type { InsightStore } from "../../core/stores/insight/store.ts";
import type {
  BudgetBalance,
  BudgetsRequest,
  LimitedKey,
  LoggedWarning,
  Store,
} from "../../core/store.ts";
import { termsOf, type BucketContext, type RefreshPolicy } from "../known-policy.ts";
import { budgetEventOf, type WarningsReader } from "./bucket-events.ts";
import { OF_PROCESS, steeredScopeOf } from "./live-control.ts";

/** The balance of one budget. The example values belong to a budget of 500 a month, on the 20th. */
export interface BudgetState {
  /** The budget: `"500/month usd"`. */
  readonly name: string;
  readonly unit: string;
  /** The period: `"month"`, or `"30d"` for rolling days. */
  readonly per: string;
  /** The key that the budget belongs to. Undefined for a budget of the bucket, and for named keys. */
  readonly key: Key | undefined;
  readonly keys: NamedKeys | undefined;
  /** The member of a pool that the budget belongs to. */
  readonly member?: string | undefined;
  /** The amount of the period, with what was carried over and granted: `550`. */
  readonly amount: number;
  /** What calls have spent, with what they have reserved: `412.5`. */
  readonly spent: number;
  /** The estimates of calls that have not settled their cost yet: `2.5`. */
  readonly reserved: number;
  /** What was carried over from earlier periods: `0`. */
  readonly carried: number;
  /** What was granted in addition until the period ends: `50`. */
  readonly granted: number;
  readonly remaining: number;
  /** The start of the period. For rolling days: of the first day that counts. */
  readonly startsAt: Date;
  /** The end of the period. For rolling days: of today. */
  readonly resetsAt: Date;
  /**
   * When the budget is spent at the pace of the period so far. Undefined if it lasts until the period ends, or for ever
   * for rolling days.
   */
  readonly spentAt: Date | undefined;
}

export interface BudgetsOptions extends KeyGiven {
  /** The member of a pool whose budgets are returned too. */
  readonly member?: string | undefined;
  /** Whether to return the budgets of the bucket and of all keys that have spent something. Defaults to false. */
  readonly all?: boolean | undefined;
}

export interface GrantOptions extends KeyGiven, WhoAndWhy {
  /** The member of a pool whose budgets are raised. */
  readonly member?: string | undefined;
  /** Why the amount is granted. The change log shows it. */
  readonly reason: string;
  /** The period of the budget, if there are several of the unit: `"month"`. Defaults to all of them. */
  readonly per?: string | undefined;
}

/** A balance to restore, as {@link BudgetState} or its JSON contains it. */
export type BudgetBackup = Pick<BudgetState, "unit" | "per" | "spent" | "carried" | "granted"> &
  Partial<Pick<BudgetState, "key" | "keys" | "member">> & { readonly startsAt: Date | string };

/** The result of a restore. */
export interface Restored {
  /** The number of balances that were restored. */
  readonly restored: number;
  /** The balances that were left out, because their period is over, or no budget of the bucket fits them. */
  readonly skipped: readonly BudgetBackup[];
}

export interface BudgetControl {
  readonly budgets: (key?: string) => Promise<readonly BudgetState[]>;
  readonly budgetsOf: (keys: readonly string[]) => Promise<readonly BudgetState[]>;
  readonly keysWithBudgets: () => Promise<readonly (string | undefined)[]>;
  readonly grant: (
    amounts: Readonly<Record<string, number>>,
    options: GrantOptions,
  ) => Promise<readonly BudgetState[]>;
  /** Restores the balances of keys of this part. Does not write to the change log. */
  readonly restore: (balances: readonly BudgetBackup[]) => Promise<Restored>;
  /** Returns how to take a grant back. */
  readonly inverseOfGrant: (last: KeptBucketChange) => Promise<Inverse<SteeredState>>;
}

const AMOUNT_ERROR = { error: `give an amount above 0, up to ${MOST_UNITS}` };
const AMOUNT = z.number(AMOUNT_ERROR).positive(AMOUNT_ERROR).max(MOST_UNITS, AMOUNT_ERROR);
const TARGET = { ...KEY_SHAPE, member: TEXT.optional() };
const GRANT = z.strictObject({
  ...TARGET,
  ...WHO_AND_WHY,
  reason: TEXT,
  per: z.string({ error: 'give a period such as "month"' }).optional(),
});
const BUDGETS = z.strictObject({
  ...TARGET,
  all: z.boolean({ error: "give true or false" }).optional(),
});
const ONE_TARGET = z.strictObject(TARGET);
const BALANCE = z.looseObject({
  unit: UNIT,
  per: z.string(),
  spent: z.number().min(0).max(MOST_UNITS),
  carried: z.number().min(0).max(MOST_UNITS),
  granted: z.number().min(0).max(MOST_UNITS),
  startsAt: z.union([z.date(), z.iso.datetime({ offset: true })]),
});

/** Reads the options of `budgets()`. */
export function readBudgetsOptions(given: unknown): { key?: string | undefined; all: boolean } {
  const { key, all = false } = oneTarget("budgets()", readOptional("budgets()", BUDGETS, given));
  return { key, all };
}

/**
 * Combines the options `key`, `keys` and `member` into one encoded key.
 *
 * @throws {@link InvalidOptionError} when several of them are set.
 */
function oneTarget<
  Read extends Parameters<typeof oneKey>[1] & { readonly member?: string | undefined },
>(where: string, given: Read) {
  const read = oneKey(where, given);
  const { member } = given;
  if (member === undefined) return read;
  if (read.key === undefined) return { ...read, key: memberKey(member) };
  const remedy = "a member has no keys; give either a key or the member";
  throw new InvalidOptionError({ where, option: "member", value: member, remedy });
}

/** @throws {@link InvalidOptionError} when the text stands for a member that the pool does not have. */
function assertMember(
  where: string,
  { pool }: Pick<Policy, "pool">,
  key: string | undefined,
): void {
  const value = memberOfText(key);
  if (value === undefined || memberScopeOf(pool, key!) !== undefined) return;
  const names = pool?.members.map(({ name }) => name);
  const remedy =
    names === undefined ? "this bucket is no pool; leave it out" : unknownMember(value, names);
  throw new InvalidOptionError({ where, option: "member", value, remedy });
}

/**
 * Reads the balances that `restore()` receives.
 *
 * @throws {@link InvalidOptionError} with the path of the first value that is no balance.
 */
export function readBackups(given: unknown): readonly BudgetBackup[] {
  const read = z.array(BALANCE).safeParse(given);
  if (read.success) return read.data as readonly BudgetBackup[];
  const [issue] = read.error.issues;
  const option = `balances${issue!.path.map((part) => `[${String(part)}]`).join("")}`;
  const remedy = "give what budgets() returned, or its JSON";
  throw new InvalidOptionError({ where: "restore()", option, value: given, remedy });
}

export interface BudgetControlParts extends BucketContext {
  readonly insight: InsightStore;
  readonly refreshPolicy: RefreshPolicy;
  readonly isClosed: () => boolean;
  readonly onChange: (key: string | undefined) => void;
}

/** A budget, and where it belongs. */
interface Placed extends BudgetBalance {
  readonly limit: Limit;
  /** The encoded key. Undefined for the bucket. */
  readonly key: string | undefined;
}

export function createBudgetControl(parts: BudgetControlParts): BudgetControl {
  const { store, insight, bucket, known, logger, refreshPolicy, isClosed, onChange } = parts;
  const log = createChangeLog({ store: insight, logger, process: OF_PROCESS });

  async function request(
    scopes: (where: string) => readonly LimitedKey[],
    change: BudgetsRequest["change"] = { do: "look" },
  ): Promise<{ readonly nowUs: number; readonly placed: readonly Placed[] }> {
    if (isClosed()) throw new ClosedError(`Bucket "${bucket}"`);
    // No draw may have read a budget yet that `configure` has added.
    await refreshPolicy();
    const terms = termsOf(asFarAsKnown(known.policy), known.terms.version);
    const own = scopes(`bucket("${bucket}")`);
    const { nowUs, balances } = await store.budgets({ bucket, terms, scopes: own, change });
    const placed = balances.map((balance): Placed => {
      const { scopeNumber, limitNumber } = balance;
      const scope = scopeNumber === 0 ? undefined : own[scopeNumber - 1]!;
      return {
        ...balance,
        limit: (scope?.limits ?? terms.limits)[limitNumber - 1]!,
        key: scope?.key,
      };
    });
    return { nowUs, placed };
  }

  function scopesOfKey(key: string | undefined): (where: string) => readonly LimitedKey[] {
    return (where) => {
      assertMember(where, known.policy, key);
      return scopesOf(asFarAsKnown(known.policy), key, where);
    };
  }

  /** Reads the budgets that a change of a key, or of the bucket, may affect. */
  async function placedIn(where: string, key: string | undefined) {
    if (known.policy === UNKNOWN_POLICY) await refreshPolicy();
    assertMember(where, known.policy, key);
    const scope =
      key === undefined ? undefined : steeredScopeOf(where, asFarAsKnown(known.policy), key);
    const scopes = scope === undefined ? [] : [scope];
    const { nowUs, placed } = await request(() => scopes);
    const number = scopes.length;
    return { nowUs, scopes, placed: placed.filter(({ scopeNumber }) => scopeNumber === number) };
  }

  async function change(
    scopes: readonly LimitedKey[],
    grants: readonly (Placed & { readonly add: number })[],
  ): Promise<readonly BudgetState[]> {
    const { nowUs, placed } = await request(() => scopes, {
      do: "grant",
      grants: grants.map(({ scopeNumber, limitNumber, startUs, add }) => {
        return { scopeNumber, limitNumber, startUs, amount: add };
      }),
    });
    onChange(scopes[0]?.key);
    return placed
      .filter(({ scopeNumber }) => scopeNumber === scopes.length)
      .map((each) => describeBudget(each, nowUs));
  }

  /** Returns the state that the change log shows before and after a grant. */
  async function stateWith(
    budgets: readonly Placed[],
    add: (budget: Placed) => number,
  ): Promise<SteeredState> {
    const { terms, policy } = known;
    const { source } = await store.peek({ bucket, terms, scopes: [] });
    const grants = budgets.map((each): Grant => {
      const granted = unitsIn(each.limit, Math.max(0, each.granted + add(each)));
      return { budget: budgetName(each.limit), granted, startUs: each.startUs };
    });
    return { policy: formatPolicy(policy), text: policy.text, source, pausedForMs: 0, grants };
  }

  return {
    async budgets(key) {
      const { nowUs, placed } = await request(scopesOfKey(key));
      return placed.map((each) => describeBudget(each, nowUs));
    },
    async budgetsOf(keys) {
      const scopes = (where: string): readonly LimitedKey[] =>
        keys.flatMap((key) => {
          const own = scopesOf(asFarAsKnown(known.policy), key, where).at(-1);
          return own?.key === key ? [own] : [];
        });
      const { nowUs, placed } = await request(scopes);
      return placed
        .filter(({ scopeNumber }) => scopeNumber > 0)
        .map((each) => describeBudget(each, nowUs));
    },
    keysWithBudgets: () => store.keysWithBudgets(bucket),
    async grant(amounts, options) {
      const where = `${known.policy.pool === undefined ? "bucket" : "pool"}("${bucket}").grant()`;
      const { key, by, reason, per } = oneTarget(where, readOptions(where, GRANT, options));
      const { scopes, placed } = await placedIn(where, key);
      const grants = grantsOf(where, amounts, { placed, per });
      const added = (budget: Placed): number =>
        grants.find(({ limitNumber }) => limitNumber === budget.limitNumber)!.add;
      const before = await stateWith(grants, () => 0);
      const after = await stateWith(grants, added);
      const draft = { bucket, subject: "budget", action: "grant", key, before, after } as const;
      return log.make({ ...draft, by, reason }, () => change(scopes, grants));
    },
    async restore(balances) {
      let restored = 0;
      const skipped: BudgetBackup[] = [];
      for (const balance of balances) {
        const key = keyOf(balance);
        const { scopes, placed } = await placedIn("restore()", key).catch((error: unknown) => {
          if (error instanceof InvalidOptionError) return { scopes: [], placed: [] };
          throw error;
        });
        const found = placed.find(({ limit, startUs }) => {
          const isSame = limit.unit === balance.unit && periodOf(limit) === balance.per;
          return isSame && startUs === new Date(balance.startsAt).getTime() * 1_000;
        });
        if (found === undefined) {
          skipped.push(balance);
          continue;
        }
        const { scopeNumber, limitNumber, startUs } = found;
        const [spent, carried, granted] = [balance.spent, balance.carried, balance.granted].map(
          toMillionths,
        ) as [number, number, number];
        const one = { scopeNumber, limitNumber, startUs, spent, carried, granted };
        await request(() => scopes, { do: "restore", balances: [one] });
        onChange(key);
        restored += 1;
      }
      return { restored, skipped };
    },
    async inverseOfGrant({ key, before, after }) {
      const { scopes, placed } = await placedIn("undo()", key);
      const grants = (after.grants ?? []).flatMap(({ budget, granted, startUs }) => {
        const found = placed.find(
          (each) => budgetName(each.limit) === budget && each.startUs === startUs,
        );
        const was = before.grants?.find((each) => each.budget === budget)?.granted ?? 0;
        const add = toMillionths(was) - toMillionths(granted);
        return found === undefined ? [] : [{ ...found, add }];
      });
      if (grants.length === 0) return { reason: "the period of the grant is over" };
      return {
        before: await stateWith(grants, () => 0),
        after: await stateWith(grants, ({ limitNumber }) => {
          return grants.find((each) => each.limitNumber === limitNumber)!.add;
        }),
        make: () => change(scopes, grants),
      };
    },
  };
}

function periodOf({ budget }: Limit): string {
  return formatBudgetPeriod(budget!.per);
}

function keyOf(balance: BudgetBackup): string | undefined {
  const entries = (["key", "keys", "member"] as const).map((name) => [name, balance[name]]);
  const given = Object.fromEntries(entries.filter(([, value]) => value !== undefined));
  return oneTarget("restore()", readOptions("restore()", ONE_TARGET, given)).key;
}

/** Passes the warnings that a reader has not handled yet to the reader, the oldest first. */
export async function handleWarnings(
  store: Pick<Store, "readWarnings">,
  bucket: string,
  { reader, handle }: WarningsReader,
): Promise<void> {
  let handled = 0;
  for (;;) {
    const warnings = await store.readWarnings({ bucket, reader, handled });
    if (warnings.length === 0) return;
    for (const warning of warnings) {
      await handle(budgetEventOf({ ...warning, limit: limitOfWarning(warning) }));
      handled = warning.number;
    }
  }
}

/** The budget of a warning. The policy may no longer contain it. */
function limitOfWarning({ unit, per, count }: LoggedWarning): Limit {
  return budget({ unit, amount: count / MILLIONTHS, per: readBudgetPeriod(per) });
}

/** Selects the budgets of the units, and the amount to add to each. */
function grantsOf(
  where: string,
  amounts: Readonly<Record<string, number>>,
  { placed, per }: { readonly placed: readonly Placed[]; readonly per: string | undefined },
): readonly (Placed & { readonly add: number })[] {
  const given = z.record(z.string(), AMOUNT).safeParse(amounts);
  const entries = given.success ? Object.entries(given.data) : [];
  if (entries.length === 0) {
    const path = given.error?.issues[0]?.path.join(".");
    const option = path === undefined || path === "" ? "amounts" : path;
    const remedy = "give amounts by unit, such as { usd: 50 }";
    throw new InvalidOptionError({ where, option, value: amounts, remedy });
  }
  return entries.flatMap(([unit, amount]) => {
    const own = placed.filter(
      ({ limit }) => limit.unit === unit && (per === undefined || periodOf(limit) === per),
    );
    if (own.length > 0) return own.map((each) => ({ ...each, add: toMillionths(amount) }));
    const names = placed.map(({ limit }) => formatLimit(limit)).join(", ");
    const hint = names === "" ? "there is no budget" : `the budgets are ${names}`;
    const remedy = `${hint}; name a unit of one of them, or the key that it belongs to`;
    throw new InvalidOptionError({ where, option: unit, value: amount, remedy });
  });
}

function describeBudget({ limit, key, ...balance }: Placed, nowUs: number): BudgetState {
  const { spent, reserved, carried, granted, total, startUs, endUs } = balance;
  const [amount, used] = [unitsIn(limit, total), unitsIn(limit, spent)];
  return {
    name: formatLimit(limit),
    unit: limit.unit,
    per: periodOf(limit),
    ...namedOf(key),
    amount,
    spent: used,
    reserved: unitsIn(limit, reserved),
    carried: unitsIn(limit, carried),
    granted: unitsIn(limit, granted),
    remaining: unitsIn(limit, Math.max(0, total - spent)),
    startsAt: dateOf(startUs),
    resetsAt: dateOf(endUs),
    spentAt: spentAtOf(limit, balance, nowUs),
  };
}

/** Forecasts from the pace of the period so far when the budget is spent. */
function spentAtOf(
  limit: Limit,
  { spent, total, startUs, endUs }: Pick<Placed, "spent" | "total" | "startUs" | "endUs">,
  nowUs: number,
): Date | undefined {
  if (spent === 0) return undefined;
  const leftUs = ((nowUs - startUs) * Math.max(0, total - spent)) / spent;
  // At a steady pace, rolling days lose as much as they gain once they are all in use.
  const isRolling = rollingDaysOf(limit.budget!) > 0;
  const lastUs = isRolling ? startUs + limit.periodUs : endUs;
  return nowUs + leftUs < lastUs ? dateOf(nowUs + leftUs) : undefined;
}

function dateOf(us: number): Date {
  return new Date(Math.ceil(us / 1_000));
}
