import type { Flags } from "../flags.ts";
import type { Taken } from "../fleet/fleet.ts";
import { runRaw, type Bench, type RawOutcome } from "../fleet/run-load.ts";
import { boundOf, mostOverLeaky, worstSum, type Leaky, type Taking } from "../fleet/windows.ts";
import { NOTES_PER_ARRIVAL } from "../limiters/contender.ts";
import { LIMITS } from "../limiters/sluice-limits.ts";
import { formatNumber, PROMISED_OF_LIMITS as PROMISED, rowOf } from "../promises.ts";
import type { Row, Table } from "../table.ts";

const REPLICAS = 4;
const CALLERS = 200;
const SECOND_MS = 1_000;

/** One call: when it started on this machine's clock, and the time of its slot on the clock of Redis. */
interface Call {
  readonly key: number;
  readonly tokens: number;
  readonly leftAtMs: number;
  readonly bookedAtMs: number;
}

/** Measures one bucket with three limits, and one more limit for each of a thousand keys. */
export async function measureLimits(bench: Bench, { effort, contenders }: Flags): Promise<Table[]> {
  if (!contenders.includes("sluice")) return [];
  const load = { cap: LIMITS.calls.perSecond, replicas: REPLICAS, callers: CALLERS };
  const { seconds } = effort;
  const outcome = await runRaw(bench, { ...load, contender: "sluice-limits", seconds });
  const all = outcome.taken.flatMap(readCalls);
  const { calls, tokens, log, key } = LIMITS;
  const limits = `${calls.perSecond} calls/s + ${formatNumber(tokens.perSecond)} tokens/s + ${log.calls} calls in any second`;
  return [
    {
      title: `${limits}; ${key.perSecond}/s for each of ${formatNumber(key.keys)} keys; ${REPLICAS} replicas`,
      rows: [
        ...shareRows(all, outcome),
        ...windowRows(all),
        ...keyRows(all),
        ...costRows(all, outcome),
      ],
    },
  ];
}

/**
 * Creates rows with the used share of each limit. The limit with the largest share is the one that restricts the
 * calls.
 */
function shareRows(all: readonly Call[], outcome: RawOutcome): Row[] {
  const { calls, tokens, log } = LIMITS;
  const seconds = (outcome.toMs - outcome.fromMs) / SECOND_MS;
  const measured = measuredOf(all, outcome);
  const tokensTaken = measured.reduce((sum, call) => sum + call.tokens, 0);
  const shares: readonly (readonly [string, number])[] = [
    [`${calls.perSecond} calls/s`, measured.length / (calls.perSecond * seconds)],
    [`${formatNumber(tokens.perSecond)} tokens/s`, tokensTaken / (tokens.perSecond * seconds)],
    [`${log.calls} calls in any second`, measured.length / (log.calls * seconds)],
  ];
  const binding = shares.reduce((a, b) => (b[1] > a[1] ? b : a));
  return shares.map((each) => {
    const [name, share] = each;
    if (each !== binding) return rowOf(`share of ${name} that is used`, share);
    const figure = `share of ${name} that is used, which binds`;
    return rowOf(figure, share, { bound: PROMISED.share });
  });
}

function windowRows(all: readonly Call[]): Row[] {
  const { calls, tokens, log } = LIMITS;
  const [left, booked] = [takingsOf(all, "left", "call"), takingsOf(all, "booked", "call")];
  const leftTokens = takingsOf(all, "left", "token");
  const bookedTokens = takingsOf(all, "booked", "token");
  const { over, worstSecond } = PROMISED;
  return [
    rowOf(`most calls in any second, of the log's ${log.calls}`, worstSum(left, log.windowMs), {
      bound: { atMost: log.calls },
      digits: 0,
    }),
    rowOf(`the same, as booked, of the log's ${log.calls}`, worstSum(booked, log.windowMs), {
      bound: { atMost: log.calls },
      digits: 0,
    }),
    rowOf(
      "calls above the bound of calls/s in any window, as booked",
      mostOverLeaky(booked, calls),
      {
        bound: over,
        digits: 0,
      },
    ),
    rowOf("the same, as they left", mostOverLeaky(left, calls), { digits: 0 }),
    rowOf("calls in the worst second, of what the bound allows", worstOf(left, calls), {
      bound: worstSecond,
      digits: 4,
    }),
    rowOf(
      "tokens above the bound of tokens/s in any window, as booked",
      mostOverLeaky(bookedTokens, tokens),
      { bound: over, digits: 0 },
    ),
    rowOf("the same, as they left", mostOverLeaky(leftTokens, tokens), { digits: 0 }),
    rowOf("tokens in the worst second, of what the bound allows", worstOf(leftTokens, tokens), {
      bound: worstSecond,
      digits: 4,
    }),
  ];
}

/** Checks that no key got more than its limit allows. The limits per key are not meant to restrict the calls. */
function keyRows(all: readonly Call[]): Row[] {
  const { key } = LIMITS;
  const byKey = byKeyOf(all);
  const most = (of: (calls: readonly Call[]) => number): number => Math.max(...byKey.map(of));
  const worst = (when: When) =>
    most((calls) => worstSum(takingsOf(calls, when, "call"), SECOND_MS));
  const over = most((calls) => mostOverLeaky(takingsOf(calls, "booked", "call"), key));
  return [
    rowOf("most calls of one key in any second, as booked", worst("booked"), {
      bound: { atMost: boundOf(key, 1) },
      digits: 0,
    }),
    rowOf("the same, as they left", worst("left"), { digits: 0 }),
    rowOf("calls of one key above its bound in any window, as booked", over, {
      bound: PROMISED.over,
      digits: 0,
    }),
  ];
}

function byKeyOf(all: readonly Call[]): Call[][] {
  const byKey: Call[][] = Array.from({ length: LIMITS.key.keys }, () => []);
  for (const call of all) byKey[call.key]!.push(call);
  return byKey;
}

function costRows(all: readonly Call[], outcome: RawOutcome): Row[] {
  const { cost } = outcome;
  const calls = measuredOf(all, outcome).length;
  return [
    rowOf("Redis commands a call, those of scripts included", cost.commands / calls, { digits: 2 }),
    rowOf("script calls a call", cost.scripts / calls, { digits: 4 }),
    rowOf("Redis CPU a call, µs", cost.cpuUs / calls, { digits: 2 }),
    rowOf("of that in scripts, µs", cost.scriptUs / calls, { digits: 2 }),
    rowOf("one script call, mean, µs", cost.scriptUs / cost.scripts, { digits: 0 }),
    rowOf("one script call, 99th percentile, µs", cost.scriptP99Us, {
      bound: PROMISED.scriptP99Us,
      digits: 0,
    }),
  ];
}

function readCalls({ arrivalsMs, notes }: Taken): Call[] {
  return Array.from(arrivalsMs, (leftAtMs, index) => {
    const [key, tokens, bookedAtMs] = notes.subarray(index * NOTES_PER_ARRIVAL);
    return { key: key!, tokens: tokens!, bookedAtMs: bookedAtMs!, leftAtMs };
  });
}

function measuredOf(all: readonly Call[], { fromMs, toMs }: RawOutcome): readonly Call[] {
  return all.filter(({ leftAtMs }) => leftAtMs >= fromMs && leftAtMs < toMs);
}

type When = "left" | "booked";

function takingsOf(all: readonly Call[], when: When, unit: "call" | "token"): Taking[] {
  return all.map(({ leftAtMs, bookedAtMs, tokens }) => ({
    atMs: when === "left" ? leftAtMs : bookedAtMs,
    cost: unit === "call" ? 1 : tokens,
  }));
}

function worstOf(takings: readonly Taking[], limit: Leaky): number {
  return worstSum(takings, SECOND_MS) / boundOf(limit, 1);
}
