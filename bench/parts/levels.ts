import type { Flags } from "../flags.ts";
import { median } from "../fleet/measure.ts";
import type { Taken } from "../fleet/fleet.ts";
import { runRaw, type Bench, type RawOutcome } from "../fleet/run-load.ts";
import { mostOverLeaky, type Leaky, type Taking } from "../fleet/windows.ts";
import { NOTES_PER_ARRIVAL } from "../limiters/contender.ts";
import { LEVELS, tenantOf } from "../limiters/sluice-levels.ts";
import { formatNumber, PROMISED_OF_LEVELS as PROMISED, rowOf } from "../promises.ts";
import type { Row, Table } from "../table.ts";

const REPLICAS = 4;
const CALLERS = 200;
const SECOND_MS = 1_000;
/** One and two levels alternate, so that load from other processes does not affect only one of them. */
const TURNS = ["one", "two", "two", "one"] as const;

/** One call: the number of its endpoint, and the time of its slot on the clock of Redis. */
interface Call {
  readonly endpoint: number;
  readonly bookedAtMs: number;
}

/** Measures the additional cost of limits for endpoints, next to those for all keys and for tenants. */
export async function measureLevels(bench: Bench, { effort, contenders }: Flags): Promise<Table[]> {
  if (!contenders.includes("sluice")) return [];
  const { all, tenant, endpoint } = LEVELS;
  const load = {
    cap: all.perSecond,
    replicas: REPLICAS,
    callers: CALLERS,
    seconds: effort.seconds,
  };
  const outcomes: Record<(typeof TURNS)[number], RawOutcome[]> = { one: [], two: [] };
  for (const turn of TURNS) {
    const contender = turn === "one" ? "sluice-one-level" : "sluice-two-levels";
    outcomes[turn].push(await runRaw(bench, { ...load, contender }));
  }
  const shares = outcomes.two.map(shareOf);
  const calls = outcomes.two.map(({ taken }) => taken.flatMap(readCalls));
  const cpu = { one: medianOf(outcomes.one, cpuOf), two: medianOf(outcomes.two, cpuOf) };
  const own = { one: medianOf(outcomes.one, scriptOf), two: medianOf(outcomes.two, scriptOf) };
  const limits = `${all.perSecond}/s + ${tenant.perSecond}/s for each of ${formatNumber(tenant.tenants)} tenants + ${endpoint.perSecond}/s for each of their ${endpoint.perTenant} endpoints`;
  return [
    {
      title: `${limits}; ${REPLICAS} replicas`,
      rows: [
        rowOf(`share of ${all.perSecond}/s that is used, which binds`, median(shares), {
          bound: PROMISED.share,
        }),
        ...overRows(calls),
        rowOf("Redis CPU a call, µs", cpu.two, { digits: 2 }),
        rowOf("the same without the limits of endpoints, µs", cpu.one, { digits: 2 }),
        rowOf("Redis CPU a call, of that", cpu.two / cpu.one, { bound: PROMISED.cpu, digits: 2 }),
        rowOf("time in scripts a call, µs", own.two, { digits: 2 }),
        rowOf("the same, of that without the limits of endpoints", own.two / own.one, {
          digits: 2,
        }),
      ],
    },
  ];
}

/** Creates rows with the largest excess over the bound of each level, over all runs and keys. */
function overRows(runs: readonly (readonly Call[])[]): Row[] {
  const { all, tenant, endpoint } = LEVELS;
  const levels: readonly (readonly [string, Leaky, (call: Call) => number])[] = [
    ["of all", all, () => 0],
    ["of one tenant", tenant, (call) => tenantOf(call.endpoint)],
    ["of one endpoint", endpoint, (call) => call.endpoint],
  ];
  return levels.map(([whose, limit, ownerOf]) => {
    const over = Math.max(...runs.map((calls) => mostOver(calls, limit, ownerOf)));
    const figure = `calls ${whose} above its bound in any window, as booked`;
    return rowOf(figure, over, { bound: PROMISED.over, digits: 0 });
  });
}

function mostOver(calls: readonly Call[], limit: Leaky, ownerOf: (call: Call) => number): number {
  const takings = new Map<number, Taking[]>();
  for (const call of calls) {
    const owner = ownerOf(call);
    const taking = { atMs: call.bookedAtMs, cost: 1 };
    const before = takings.get(owner);
    if (before === undefined) takings.set(owner, [taking]);
    else before.push(taking);
  }
  return [...takings.values()].reduce((most, own) => Math.max(most, mostOverLeaky(own, limit)), 0);
}

function readCalls({ arrivalsMs, notes }: Taken): Call[] {
  return Array.from(arrivalsMs, (_, index) => {
    const [endpoint, , bookedAtMs] = notes.subarray(index * NOTES_PER_ARRIVAL);
    return { endpoint: endpoint!, bookedAtMs: bookedAtMs! };
  });
}

function callsOf({ taken, fromMs, toMs }: RawOutcome): number {
  const isMeasured = (atMs: number): boolean => atMs >= fromMs && atMs < toMs;
  return taken.reduce((sum, { arrivalsMs }) => sum + arrivalsMs.filter(isMeasured).length, 0);
}

function shareOf(outcome: RawOutcome): number {
  const seconds = (outcome.toMs - outcome.fromMs) / SECOND_MS;
  return callsOf(outcome) / (LEVELS.all.perSecond * seconds);
}

function cpuOf(outcome: RawOutcome): number {
  return outcome.cost.cpuUs / callsOf(outcome);
}

function scriptOf(outcome: RawOutcome): number {
  return outcome.cost.scriptUs / callsOf(outcome);
}

function medianOf(outcomes: readonly RawOutcome[], figureOf: (each: RawOutcome) => number): number {
  return median(outcomes.map(figureOf));
}
