import type { Scenario, Stage } from "../stage.ts";
import { measureFor, shareOf, startLoad, worstSecond } from "./figures.ts";

const START_UP_MS = 1_000;

const oneRate: Scenario = {
  name: "one-rate",
  title: "Four replicas share a rate",
  about: "Four processes have more calls than a rate of 200/s allows.",
  replicas: 4,
  plan: () => ({ rate: { calls: 200, seconds: 1 } }),
  async run(stage) {
    const { log, plan, isQuick } = stage;
    await startLoad(stage, { forMs: START_UP_MS });
    const period = await measureFor(stage, isQuick ? 3_000 : 8_000);
    const shares = [0, 1, 2, 3].map((replica) => log.accepted(period, { replica }));
    return [
      {
        figure: "share of the rate that is used",
        // Less than 1, because a slot is lost if its process gets no CPU for longer than half an interval.
        bound: { atLeast: 0.995 },
        value: shareOf(stage, plan.rate, period),
        digits: 3,
      },
      worstSecond(stage, { digits: 3 }),
      {
        figure: "fairness between replicas (Jain's index)",
        bound: { atLeast: 0.98 },
        value: jainIndex(shares),
        digits: 3,
      },
    ];
  },
};

/** Computes the fairness index of R. Jain, D. Chiu, W. Hawe: A quantitative measure of fairness, 1984. */
function jainIndex(counts: readonly number[]): number {
  const sum = counts.reduce((total, count) => total + count, 0);
  const squares = counts.reduce((total, count) => total + count * count, 0);
  return squares === 0 ? 0 : (sum * sum) / (counts.length * squares);
}

const windowEdge: Scenario = {
  name: "window-edge",
  title: "Two replicas at the edge of a window",
  about:
    "One call starts a window of one second. 0.9 s later, both replicas make 60 calls at once under a rate of 50/s.",
  published: "SGrondin/bottleneck #153, OptimalBits/bull #2777",
  replicas: 2,
  plan: () => ({ rate: { calls: 50, seconds: 1 } }),
  async run(stage) {
    const { burst, pause, until, log, isQuick } = stage;
    const rounds = isQuick ? 1 : 3;
    for (let round = 0; round < rounds; round++) {
      const fromMs = log.nowMs();
      const countSince = (): number => log.accepted({ fromMs, toMs: Infinity });
      burst({ replica: 0, calls: 1 });
      await until(() => countSince() >= 1, 5_000);
      await pause(900);
      for (const replica of [0, 1]) burst({ replica, calls: 60 });
      await until(() => countSince() >= 121, 10_000);
      await pause(1_500);
    }
    return [worstSecond(stage, { atMost: 1.02 })];
  },
};

const twoTeams: Scenario = {
  name: "two-teams",
  title: "Two teams at half of a limit each",
  about:
    "Team a alone has calls, then both teams do. The limit is 40/s, and each team may use 20/s.",
  published: "BerriAI/litellm #18128, #35422",
  replicas: 2,
  plan: () => ({ rate: { calls: 40, seconds: 1 }, perKey: { calls: 20, seconds: 1 } }),
  async run(stage) {
    const { plan, isQuick } = stage;
    const perKey = plan.perKey!;
    const phaseMs = isQuick ? 2_000 : 4_000;
    await startLoad(stage, { key: "a", forMs: START_UP_MS });
    const alone = await measureFor(stage, phaseMs);
    await startLoad(stage, { key: "b", forMs: START_UP_MS });
    const both = await measureFor(stage, phaseMs);
    const shares = ["a", "b"].map((path) => shareOf(stage, perKey, both, { path }));
    return [
      worstSecond(stage, {
        figure: "worst second of the lone team, of its limit",
        atMost: 1.05,
        rate: perKey,
        period: alone,
      }),
      worstSecond(stage, {
        figure: "worst second of both teams, of the whole limit",
        atMost: 1.05,
        period: both,
      }),
      {
        figure: "share that the team with fewer calls gets, of its limit",
        bound: { atLeast: 0.95 },
        value: Math.min(...shares),
        digits: 2,
      },
    ];
  },
};

const DEPLOYMENTS = ["east", "west", "north", "south"];

const fourDeployments: Scenario = {
  name: "four-deployments",
  title: "Four deployments of 6 calls a minute",
  about:
    "Four replicas make 24 calls, as many as four deployments of 6 a minute allow. Each deployment refuses a seventh call within a minute.",
  published: "BerriAI/litellm #8430: 19 of 24",
  replicas: 4,
  isLong: true,
  plan: (isQuick) => ({ rate: { calls: 6, seconds: isQuick ? 6 : 60 }, members: DEPLOYMENTS }),
  async run({ burst, respond, until, log, plan }) {
    const { calls, seconds } = plan.rate;
    const periodMs = seconds * 1_000;
    const lastMs = new Map<string, number[]>(DEPLOYMENTS.map((name) => [`/${name}`, []]));
    respond(({ atMs, path }) => {
      const times = lastMs.get(path)!;
      const firstMs = times.at(-calls);
      // A call may be noticed a little late, so that the next ones look too early.
      const leftMs = firstMs === undefined ? 0 : periodMs - (atMs - firstMs);
      if (leftMs > JITTER_MS) return refusal(leftMs);
      times.push(atMs);
      return undefined;
    });
    const fromMs = log.nowMs();
    for (const replica of [0, 1, 2, 3]) burst({ replica, calls });
    const period = { fromMs, toMs: fromMs + periodMs };
    await until(() => log.accepted(period) >= calls * 4, periodMs);
    return [
      {
        figure: "calls done in the first minute, of 24",
        bound: { atLeast: 24 },
        value: log.accepted(period),
      },
      { figure: "calls refused with 429", bound: { atMost: 0 }, value: log.refused },
    ];
  },
};

const JITTER_MS = 50;

/** A 429 with `Retry-After` in whole seconds, as most APIs send it. */
export function refusal(waitMs: number): ReturnType<Parameters<Stage["respond"]>[0]> {
  const seconds = Math.max(1, Math.ceil(waitMs / 1_000));
  return { status: 429, headers: { "retry-after": String(seconds) } };
}

export const RATES: readonly Scenario[] = [oneRate, windowEdge, twoTeams, fourDeployments];
