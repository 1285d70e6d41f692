/** The scenario of one process that tries keys as fast as it can. */
import { probe } from "../parts/tries.ts";
import type { Scenario } from "./scenario.ts";
import type { Figure } from "./verdict.ts";

const CALLERS = 500;
const START_UP_SECONDS = 2;
const MANY_KEYS = 10_000;

const FIGURES: readonly Figure[] = [
  { key: "processUs", title: "process CPU per try, µs", better: "lower", digits: 2 },
  { key: "redisUs", title: "Redis CPU per try, µs", better: "lower", digits: 2, floor: 0.05 },
  { key: "scripts", title: "script calls per try", better: "lower", digits: 4, floor: 0.001 },
  { key: "perSecond", title: "tries per second", better: "higher", digits: 0, isJudged: false },
];

interface Keys {
  readonly names: number;
  readonly keys: number;
  readonly max: number;
  readonly windowSeconds: number;
}

export const tries = {
  try: scenario("tryDraw, one key", {
    names: 1,
    keys: 1,
    max: 10_000_000,
    windowSeconds: 1,
  }),
  "try-keys": scenario("tryDraw, 10,000 keys", {
    names: 1,
    keys: MANY_KEYS,
    max: 1_000,
    windowSeconds: 1,
  }),
  "try-scopes": scenario("tryDraw, three scopes", {
    names: 3,
    keys: MANY_KEYS,
    max: 1_000,
    windowSeconds: 60,
  }),
} as const satisfies Readonly<Record<string, Scenario>>;

function scenario(title: string, keys: Keys): Scenario {
  return {
    title,
    figures: FIGURES,
    async run({ bench: { redisUrl }, seconds }, build) {
      const report = await probe({
        ...keys,
        redisUrl,
        build,
        seconds,
        limiter: "sluice",
        callers: CALLERS,
        startUpSeconds: START_UP_SECONDS,
      });
      return {
        processUs: report.cpuUs / report.calls,
        redisUs: report.cost.cpuUs / report.calls,
        scripts: report.cost.scripts / report.calls,
        perSecond: report.calls / report.seconds,
      };
    },
  };
}
