import type { Scenario } from "../stage.ts";
import { FOUR_AT_100, recovery, startLoad, worstSecond } from "./figures.ts";
import { refusal } from "./rates.ts";

const STORM_MS = 2_000;

const storm: Scenario = {
  ...FOUR_AT_100,
  name: "storm",
  title: "A 429 storm",
  about:
    "The downstream refuses all calls for 2 s and says so in Retry-After. Four replicas have calls at 100/s.",
  published: "octokit/plugin-throttling.js #629, SGrondin/bottleneck #223",
  async run(stage) {
    const { pause, respond, log, isQuick } = stage;
    await startLoad(stage);
    const stormMs = log.nowMs();
    const endMs = stormMs + STORM_MS;
    respond(({ atMs }) => (atMs < endMs ? refusal(endMs - atMs) : undefined));
    await pause(STORM_MS + (isQuick ? 5_000 : 7_000));
    return [
      { figure: "calls refused", bound: { atMost: 15 }, value: log.refused },
      worstSecond(stage, {
        figure: "calls in the worst second afterwards, of the rate",
        period: { fromMs: endMs },
      }),
      recovery(stage, endMs),
    ];
  },
};

const WINDOW_MS = 5_000;
/** The quota changes in the middle of a window. */
const MID_WINDOW_MS = WINDOW_MS / 2;
const FIRST_CALL_LIMIT_MS = 10_000;
const MOST_RECOVERY_S = 8;
/** How long the quota is whole again: two windows, so that a limiter has the promised time to recover. */
const AFTER_MS = 2 * WINDOW_MS;

const quota: Scenario = {
  name: "quota",
  title: "A quota that halves for a minute",
  about:
    "The downstream allows 200 calls in each window of 5 s, for a minute only 100. Its responses name the quota, as OpenAI's do. Four replicas have calls at 40/s.",
  published: "taskforcesh/bullmq #3019",
  replicas: 4,
  isLong: true,
  plan: () => ({ rate: { calls: 40, seconds: 1 }, statesQuota: true }),
  async run(stage) {
    const { pause, until, respond, log, plan, isQuick } = stage;
    const perSecond = plan.rate.calls;
    const whole = (perSecond * WINDOW_MS) / 1_000;
    const fullMs = MID_WINDOW_MS + WINDOW_MS;
    const halfMs = isQuick ? 15_000 : 60_000;
    let [startMs, windowMs, used] = [Number.NaN, 0, 0];
    respond(({ atMs }) => {
      if (Number.isNaN(startMs)) startMs = windowMs = atMs;
      while (atMs >= windowMs + WINDOW_MS) [windowMs, used] = [windowMs + WINDOW_MS, 0];
      const isHalf = atMs >= startMs + fullMs && atMs < startMs + fullMs + halfMs;
      const limit = isHalf ? whole / 2 : whole;
      const leftMs = windowMs + WINDOW_MS - atMs;
      if (used >= limit) return refusal(leftMs);
      used += 1;
      const headers = {
        "x-ratelimit-limit-requests": String(limit),
        "x-ratelimit-remaining-requests": String(limit - used),
        "x-ratelimit-reset-requests": `${(leftMs / 1_000).toFixed(3)}s`,
      };
      return { status: 200, headers };
    });
    await startLoad(stage, { forMs: 0 });
    await until(() => !Number.isNaN(startMs), FIRST_CALL_LIMIT_MS);
    await pause(fullMs + halfMs + AFTER_MS);
    const restoredMs = startMs + fullMs + halfMs;
    const period = { fromMs: startMs, toMs: restoredMs + AFTER_MS };
    // When the quota halves, all of its window is already used.
    const halfSeconds = (halfMs - MID_WINDOW_MS) / 1_000;
    const allowed = (perSecond * (fullMs + AFTER_MS)) / 1_000 + (perSecond / 2) * halfSeconds;
    return [
      {
        figure: "share of the quota that is used",
        bound: { atLeast: 0.95 },
        value: log.accepted(period) / allowed,
        digits: 3,
      },
      { figure: "calls refused", bound: { atMost: 10 }, value: log.refused },
      recovery(stage, restoredMs, MOST_RECOVERY_S),
    ];
  },
};

export const REFUSALS: readonly Scenario[] = [storm, quota];
