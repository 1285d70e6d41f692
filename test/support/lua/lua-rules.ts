import { ruleOf } from "../../../src/core/limits/registry.ts";
import type { Limit } from "../../../src/core/limits/rule.ts";
import type { MakeScript } from "../../../src/stores/memory/lua/script.ts";
import * as runtime from "../../../src/stores/memory/lua/runtime.ts";
import { translate } from "../../../src/stores/memory/lua/translate.ts";
import { createMemoryRedis } from "../../../src/stores/memory/redis/memory-redis.ts";
import { readLua } from "../../../src/stores/redis/scripts/script.ts";

const { tableOf } = runtime;
type Fields = Record<`$${string}`, unknown>;

/** What Redis keeps of a limit: three numbers, and the keys of its parts. */
export interface LuaState {
  table: Fields;
  /** The limit whose numbers the table has. */
  limit: Limit | undefined;
}

/** The arithmetic of one kind of limit, as `lua/lib/limits/` has it, on an empty Redis in memory. */
export interface LuaRule {
  fresh(): LuaState;
  /** The earliest time, at or after `atUs`, at which this cost may pass; Infinity if that is unknown. */
  earliest(limit: Limit, state: LuaState, atUs: number, cost: number, nowUs: number): number;
  /** Books the cost at a time that `earliest` allowed; a negative cost takes back a booking of that time. */
  commit(limit: Limit, state: LuaState, atUs: number, cost: number, nowUs: number): void;
  adapt(from: Limit, to: Limit, state: LuaState, nowUs: number): void;
  excess(limit: Limit, state: LuaState, atUs: number, cost: number): number;
}

/** Calls one function of one rule: the two are named by ARGV, and KEYS has what the function takes. */
const SOURCE = `${readLua("lib/limits/registry")}
local call = RULES[ARGV[1]][ARGV[2]]
return call and call(unpack(KEYS))`;
// oxlint-disable-next-line no-implied-eval -- the text is the translation of a file of the repository
const makeCall = new Function(`return ${translate(SOURCE)}`)() as MakeScript;

export function luaRule(kind: string): LuaRule {
  const { commands } = createMemoryRedis({
    nowUs: () => 0,
    expiryUs: () => 0,
    publish: () => 0,
  });
  const script = makeCall(runtime);
  let states = 0;

  function call(name: string, ...given: unknown[]): number {
    const args = tableOf([ruleOf(kind).code, name]);
    const values = script(tableOf(given as runtime.Value[]), args, commands);
    return (Array.isArray(values) ? values[0] : values) as number;
  }

  function under(limit: Limit, state: LuaState): Fields {
    if (state.limit !== limit) Object.assign(state.table, numbersOf(limit));
    state.limit = limit;
    return state.table;
  }

  return {
    fresh() {
      states += 1;
      const keys = tableOf([`${states}:1`, `${states}:2`]);
      return { table: { ...tableOf([]), $a: 0, $b: 0, $c: 0, $keys: keys }, limit: undefined };
    },
    earliest: (limit, state, atUs, cost, nowUs) =>
      call("earliest", under(limit, state), atUs, cost, drawerAt(nowUs)),
    commit(limit, state, atUs, cost, nowUs) {
      call("commit", under(limit, state), atUs, cost, drawerAt(nowUs));
    },
    adapt(from, to, state, nowUs) {
      const before = under(from, state);
      const after = { ...before, ...numbersOf(to) };
      call("adapt", before, after, nowUs);
      state.table = after;
      state.limit = to;
    },
    excess: (limit, state, atUs, cost) => call("excess", under(limit, state), atUs, cost),
  };
}

function numbersOf({ kind, count, periodUs, capacity, resets }: Limit): Fields {
  return {
    $code: ruleOf(kind).code,
    $count: count,
    $period_us: periodUs,
    $capacity: capacity,
    $resets: resets && tableOf([...resets]),
    ...(kind === "budget" && { $terms: CALENDAR }),
  };
}

/** A budget of calendar periods that carries nothing over and warns of nothing. */
const CALENDAR: Fields = {
  ...tableOf([]),
  $most_carried: 0,
  $reserve_us: 1_000,
  $day_count: 0,
  $days: tableOf([]),
  $warn_at: tableOf([]),
};

function drawerAt(nowUs: number): Fields {
  return { ...tableOf([]), $replica: "a", $now_us: nowUs, $order: 0, $lease: 1 };
}
