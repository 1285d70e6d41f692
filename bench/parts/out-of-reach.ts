import type { Flags } from "../flags.ts";
import { createFleet } from "../fleet/fleet.ts";
import { runLoad, type Bench } from "../fleet/run-load.ts";
import type { Compared } from "../limiters/contenders.ts";
import { formatNumber } from "../promises.ts";
import type { Table } from "../table.ts";

const OUT_OF_REACH = 10_000_000;
const CALLERS = 2_000;
const PROMISED_DRAWS = 1_000_000;
/**
 * Only one of this many arrivals is recorded, because recording a million arrivals a second would take part of the
 * measured time.
 */
const EVERY = 1_000;

/** Measures how many calls a second one process can start when no cap limits it. */
export async function measureOutOfReach(bench: Bench, flags: Flags): Promise<Table[]> {
  const { contenders, effort } = flags;
  const perSecond: Partial<Record<Compared, number>> = {};
  const seconds = effort.throughputSeconds;
  for (const contender of contenders.filter((name) => name !== "bullmq")) {
    const fleet = createFleet();
    const load = { contender, cap: OUT_OF_REACH, replicas: 1, callers: CALLERS, seconds };
    const every = contender === "bottleneck" ? 1 : EVERY;
    const outcome = await runLoad({ ...bench, fleet }, { ...load, every });
    perSecond[contender] = outcome.calls / outcome.seconds;
    await fleet.end();
  }
  const { sluice } = perSecond;
  const values = Object.entries(perSecond).map(([name, value]) => [name, formatNumber(value, 0)]);
  return [
    {
      title: "One process, with the cap out of reach",
      rows: [
        {
          figure: "calls a second",
          promise: `≥ ${formatNumber(PROMISED_DRAWS)}`,
          isKept: sluice === undefined ? undefined : sluice >= PROMISED_DRAWS,
          values: Object.fromEntries(values) as Partial<Record<Compared, string>>,
        },
      ],
    },
  ];
}
