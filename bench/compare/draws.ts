/**
 * The scenarios of replicas whose callers draw slots, and of workers whose jobs do, as fast as their buckets allow.
 */
import { runLoad, type Load, type Outcome } from "../fleet/run-load.ts";
import type { Peer, Run, Scenario } from "./scenario.ts";
import { OTHERS, type Figure, type Figures } from "./verdict.ts";

const START_UP_SECONDS = 2;
const REPLICAS = 4;
const CALLERS = 50;

type PacedLoad = Pick<Load, "contender" | "cap"> & Partial<Pick<Load, "replicas" | "callers">>;

/** Returns the cost figures of one call, or of one job. */
function costFigures(one: string): Figure[] {
  return [
    { key: "redisUs", title: `Redis CPU per ${one}, µs`, better: "lower", digits: 2 },
    {
      key: "mainThreadUs",
      title: "of that in its main thread, µs",
      better: "lower",
      digits: 2,
      isJudged: false,
    },
    { key: "replicaUs", title: `process CPU per ${one}, µs`, better: "lower", digits: 1 },
    { key: "scripts", title: `script calls per ${one}`, better: "lower", digits: 4, floor: 0.001 },
  ];
}

/** Up to this value, no second has too many calls, so a lower figure is not better. */
const PROMISED_WORST_SECOND = 1.01;
const PACE_FIGURES: readonly Figure[] = [
  { key: "share", title: "share of the cap that is used", better: "higher", digits: 3 },
  {
    key: "worstSecond",
    title: "worst second, of the cap",
    better: "lower",
    digits: 4,
    floor: PROMISED_WORST_SECOND,
  },
];
const FAIRNESS: Figure = {
  key: "fairness",
  title: "fairness between replicas (Jain's index)",
  better: "higher",
  digits: 3,
};
/** Rates are only shown. Redis CPU per call is judged instead. */
const RATE_FIGURES: readonly Figure[] = [
  {
    key: "perRedisSecond",
    title: "calls per second of Redis CPU",
    better: "higher",
    digits: 0,
    isJudged: false,
  },
  { key: "perSecond", title: "calls per second", better: "higher", digits: 0, isJudged: false },
];

const bottleneck: Peer = {
  title: "Bottleneck",
  run: (run) => drive(run, { contender: "bottleneck", cap: 1_000 }),
};

export const draws = {
  plain: {
    ...paced("plain 1,000/s", { contender: "sluice", cap: 1_000 }),
    peer: bottleneck,
  },
  slow: paced("plain 100/s", { contender: "sluice", cap: 100 }),
  keyed: {
    ...paced("100 keys of 50/s, 1,000/s", { contender: "sluice-100-keys", cap: 1_000 }),
    peer: bottleneck,
  },
  fair: {
    ...paced("100 keys of 50/s in turns, 1,000/s", { contender: "sluice-fair", cap: 1_000 }),
    peer: withoutTurns("sluice-100-keys"),
  },
  "many-fair": {
    ...paced("10,000 keys of 50/s in turns, 1,000/s", {
      contender: "sluice-many-fair",
      cap: 1_000,
    }),
    peer: withoutTurns("sluice-many-keys"),
  },
  pool: {
    ...paced("a pool of 4 members of 250/s", { contender: "sluice-pool", cap: 1_000 }),
    peer: oneBucket(),
  },
  budget: {
    ...paced("a rate of 1,000/s and a budget", { contender: "sluice-budget", cap: 1_000 }),
    peer: oneBucket(),
  },
  "few-keys": paced("10 keys of 50/s, 500/s in all", { contender: "sluice-10-keys", cap: 500 }),
  "many-keys": paced("10,000 keys of 50/s, 1,000/s", { contender: "sluice-many-keys", cap: 1_000 }),
  "many-replicas": paced("100 keys of 50/s, 1,000/s, 8 replicas", {
    contender: "sluice-100-keys",
    cap: 1_000,
    replicas: 8,
  }),
  "many-callers": paced("100 keys of 50/s, 1,000/s, 2,000 callers a replica", {
    contender: "sluice-100-keys",
    cap: 1_000,
    callers: 2_000,
  }),
  llm: {
    ...paced("tokens + leases, 500/s", { contender: "sluice-llm", cap: 500 }),
    peer: bottleneck,
  },
  "llm-fast": {
    title: "tokens + leases, 20,000/s",
    figures: [...RATE_FIGURES, ...costFigures("call"), FAIRNESS, OTHERS],
    run: (run, build) => drive(run, { contender: "sluice-llm", cap: 20_000 }, build),
  },
  "llm-unlimited": {
    title: "tokens + leases, cap out of reach",
    figures: [...RATE_FIGURES, ...costFigures("call"), OTHERS],
    run: (run, build) =>
      drive(run, { contender: "sluice-llm", cap: 1_000_000, callers: 200 }, build),
  },
  levels: paced("two levels, 1,000/s", { contender: "sluice-two-levels", cap: 1_000 }),
  jobs: pacedJobs("jobs, 1,000/s", "sluice-jobs"),
  "keyed-jobs": pacedJobs("jobs of 100 keys, 1,000/s", "sluice-keyed-jobs"),
} as const satisfies Readonly<Record<string, Scenario>>;

function paced(title: string, load: PacedLoad): Scenario {
  return {
    title,
    figures: [...costFigures("call"), ...PACE_FIGURES, FAIRNESS, OTHERS],
    run: (run, build) => drive(run, load, build),
  };
}

/** The same load of this build, whose calls start in the order of their arrival. */
function withoutTurns(contender: Load["contender"]): Peer {
  return { title: "without turns", run: (run) => drive(run, { contender, cap: 1_000 }) };
}

/** The same load through a bucket with only a rate. */
function oneBucket(): Peer {
  return { title: "one bucket", run: (run) => drive(run, { contender: "sluice", cap: 1_000 }) };
}

function pacedJobs(title: string, contender: Load["contender"]): Scenario {
  const load = { contender, cap: 1_000, replicas: 1, callers: 300 };
  return {
    title,
    figures: [...costFigures("job"), ...PACE_FIGURES, OTHERS],
    run: (run, build) => drive(run, load, build),
  };
}

async function drive({ bench, seconds }: Run, load: PacedLoad, build?: string): Promise<Figures> {
  const common = { replicas: REPLICAS, callers: CALLERS, startUpSeconds: START_UP_SECONDS };
  return figuresOf(await runLoad(bench, { ...common, ...load, seconds, build }));
}

function figuresOf({ calls, cost, cpuUs, seconds, otherCores, ...traffic }: Outcome): Figures {
  const { share, worstSecond, fairness } = traffic;
  return {
    redisUs: cost.cpuUs / calls,
    mainThreadUs: cost.mainThreadUs / calls,
    replicaUs: cpuUs,
    scripts: cost.scripts / calls,
    perRedisSecond: (calls * 1e6) / cost.cpuUs,
    perSecond: calls / seconds,
    share,
    worstSecond,
    fairness,
    [OTHERS.key]: otherCores,
  };
}
