import type { Flags } from "../flags.ts";
import { runLoad, type Bench, type Load, type Outcome } from "../fleet/run-load.ts";
import type { Compared } from "../limiters/contenders.ts";
import { formatNumber } from "../promises.ts";
import type { Row, Table } from "../table.ts";

const REPLICAS = 4;
const CALLERS = 50;
const START_UP_SECONDS = 2;

interface Case {
  readonly title: string;
  readonly cap: number;
  readonly contenders: Partial<Readonly<Record<Compared, Load["contender"]>>>;
}

/**
 * Compares limits per key, and the limits of a language model's API, with the closest feature of each peer.
 * Bottleneck counts no tokens. The queue of rate-limiter-flexible has no keys next to a shared limit, and no
 * concurrency limit.
 */
const CASES: readonly Case[] = [
  {
    title: "100 keys of 50/s beside 1,000/s (Bottleneck: a chained group)",
    cap: 1_000,
    contenders: {
      sluice: "sluice-100-keys",
      bottleneck: "bottleneck-100-keys",
      "rate-limiter-flexible": "rate-limiter-flexible",
    },
  },
  {
    title: "500/s, tokens and calls at once (the peers without tokens)",
    cap: 500,
    contenders: {
      sluice: "sluice-llm",
      bottleneck: "bottleneck-at-once",
      "rate-limiter-flexible": "rate-limiter-flexible",
    },
  },
];

const FIGURES: readonly {
  readonly figure: string;
  readonly digits: number;
  readonly valueOf: (outcome: Outcome) => number;
}[] = [
  { figure: "Redis CPU a call, µs", digits: 1, valueOf: ({ cost, calls }) => cost.cpuUs / calls },
  { figure: "CPU of the replica a call, µs", digits: 0, valueOf: ({ cpuUs }) => cpuUs },
  { figure: "script calls a call", digits: 3, valueOf: ({ cost, calls }) => cost.scripts / calls },
  { figure: "share of the cap that is used", digits: 3, valueOf: ({ share }) => share },
  { figure: "worst second, of the cap", digits: 4, valueOf: ({ worstSecond }) => worstSecond },
  { figure: "fairness between replicas", digits: 3, valueOf: ({ fairness }) => fairness },
];

/** Measures limits per key and the limits of a language model, for Sluice and for its peers, one after the other. */
export async function measureEveryday(bench: Bench, flags: Flags): Promise<Table[]> {
  const tables: Table[] = [];
  for (const { title, cap, contenders } of CASES) {
    const outcomes = new Map<Compared, Outcome>();
    for (const compared of flags.contenders) {
      const contender = contenders[compared];
      if (contender === undefined) continue;
      const load = { contender, cap, replicas: REPLICAS, callers: CALLERS };
      const seconds = compared === "sluice" ? flags.effort.seconds : flags.effort.peerSeconds;
      const timed = { ...load, seconds, startUpSeconds: START_UP_SECONDS };
      outcomes.set(compared, await runLoad(bench, timed));
    }
    const rows = FIGURES.map(({ figure, digits, valueOf }): Row => {
      const values = [...outcomes].map(([name, outcome]) => [
        name,
        formatNumber(valueOf(outcome), digits),
      ]);
      return { figure, values: Object.fromEntries(values) as Row["values"] };
    });
    tables.push({ title: `${title}; ${REPLICAS} replicas of ${CALLERS} callers`, rows });
  }
  return tables;
}
