import type { Flags } from "../flags.ts";
import { runLoad, type Bench, type Outcome } from "../fleet/run-load.ts";
import type { Compared } from "../limiters/contenders.ts";
import { formatBound, formatNumber, isWithin, PROMISED } from "../promises.ts";
import type { Row, Table } from "../table.ts";

interface Case {
  readonly cap: number;
  readonly replicas: number;
}

type Outcomes = Partial<Record<Compared, Outcome>>;

const CASES: readonly Case[] = [
  { cap: 100, replicas: 4 },
  { cap: 1_000, replicas: 4 },
  { cap: 5_000, replicas: 4 },
  { cap: 100_000, replicas: 4 },
  { cap: 1_000, replicas: 32 },
];
const JOBS_AT_ONCE = 100;
const FEWEST_CALLERS = 200;
/**
 * The number of callers is the cap × this many seconds. That is more than the slots of a horizon, so that calls always
 * wait. Many more callers would only measure their garbage collection.
 */
const BACKLOG_SECONDS = 0.15;
/** The most callers of a peer, because a peer that cannot reach its cap gets slower when more callers wait. */
const MOST_CALLERS_OF_PEERS = 1_000;

/** Runs each limiter under each cap, alternately, so that load from other processes affects all of them. */
export async function measureCaps(bench: Bench, flags: Flags): Promise<Table[]> {
  const { effort, contenders, caps } = flags;
  const tables: Table[] = [];
  for (const each of CASES.filter(({ cap }) => caps?.includes(cap) ?? true)) {
    const outcomes: Outcomes = {};
    for (const contender of contenders) {
      const seconds = contender === "sluice" ? effort.seconds : effort.peerSeconds;
      const callers = callersOf(contender, each);
      outcomes[contender] = await runLoad(bench, { contender, ...each, callers, seconds });
    }
    tables.push(tableOf(each, outcomes));
  }
  return tables;
}

function callersOf(contender: Compared, { cap, replicas }: Case): number {
  if (contender === "bullmq") return JOBS_AT_ONCE;
  const callers = Math.max(FEWEST_CALLERS, Math.ceil((cap / replicas) * BACKLOG_SECONDS));
  return contender === "sluice" ? callers : Math.min(callers, MOST_CALLERS_OF_PEERS);
}

function tableOf({ cap, replicas }: Case, outcomes: Outcomes): Table {
  return {
    title: `${formatNumber(cap)} calls a second, ${replicas} replicas`,
    rows: PROMISED.map(({ figure, digits, valueOf, boundAt }): Row => {
      const bound = boundAt(cap, replicas);
      const { sluice } = outcomes;
      const isPromised = bound !== undefined && sluice !== undefined;
      return {
        figure,
        promise: bound && formatBound(bound),
        isKept: isPromised ? isWithin(bound, valueOf(sluice)) : undefined,
        values: mapOutcomes(outcomes, (outcome) => formatNumber(valueOf(outcome), digits)),
      };
    }),
  };
}

function mapOutcomes(
  outcomes: Outcomes,
  format: (outcome: Outcome) => string,
): Partial<Record<Compared, string>> {
  const entries = Object.entries(outcomes).map(([name, outcome]) => [name, format(outcome)]);
  return Object.fromEntries(entries) as Partial<Record<Compared, string>>;
}
