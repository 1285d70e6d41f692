import type { Scenario } from "../stage.ts";
import { refusal } from "./rates.ts";

const STORM_MS = 2_000;

const storm: Scenario = {
  name: "storm",
  title: "A 429 storm",
  about:
    "The downstream refuses all calls for 2 s and says so in Retry-After. Four replicas have calls at 100/s.",
  published: "octokit/plugin-throttling.js #629, SGrondin/bottleneck #223",
  replicas: 4,
  plan: () => ({ rate: { calls: 100, seconds: 1 } }),
  async run({ loop, pause, respond, log, plan, isQuick }) {
    loop({ callers: 10 });
    await pause(2_000);
    const stormMs = log.nowMs();
    const endMs = stormMs + STORM_MS;
    respond(({ atMs }) => (atMs < endMs ? refusal(endMs - atMs) : undefined));
    await pause(STORM_MS + (isQuick ? 5_000 : 7_000));
    return [
      { figure: "calls refused", bound: { atMost: 15 }, value: log.refused },
      {
        figure: "calls in the worst second afterwards, of the rate",
        bound: { atMost: 1.01 },
        value: log.worstSecond({ fromMs: endMs }) / plan.rate.calls,
        digits: 2,
      },
      {
        figure: "seconds until 90 % of the rate is used again",
        bound: { atMost: 5 },
        value: log.recoveredAfter(endMs, plan.rate.calls * 0.9),
        digits: 1,
      },
    ];
  },
};

const WINDOW_MS = 5_000;
/** The quota changes in the middle of a window. */
const MID_WINDOW_MS = WINDOW_MS / 2;

const quota: Scenario = {
  name: "quota",
  title: "A quota that halves for a minute",
  about:
    "The downstream allows 200 calls in each window of 5 s, for a minute only 100. Its responses name the quota, as OpenAI's do. Four replicas have calls at 40/s.",
  published: "taskforcesh/bullmq #3019",
  replicas: 4,
  isLong: true,
  plan: () => ({ rate: { calls: 40, seconds: 1 }, statesQuota: true }),
  async run({ loop, pause, respond, log, plan, isQuick }) {
    const perSecond = plan.rate.calls;
    const whole = (perSecond * WINDOW_MS) / 1_000;
    const fullMs = MID_WINDOW_MS + (isQuick ? 1 : 2) * WINDOW_MS;
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
    loop({ callers: 10 });
    const afterMs = isQuick ? 10_000 : 15_000;
    await pause(fullMs + halfMs + afterMs + 1_000);
    const restoredMs = startMs + fullMs + halfMs;
    const period = { fromMs: startMs, toMs: restoredMs + afterMs };
    // When the quota halves, all of its window is already used.
    const halfSeconds = (halfMs - MID_WINDOW_MS) / 1_000;
    const allowed = (perSecond * (fullMs + afterMs)) / 1_000 + (perSecond / 2) * halfSeconds;
    return [
      {
        figure: "share of the quota that is used",
        bound: { atLeast: 0.95 },
        value: log.accepted(period) / allowed,
        digits: 3,
      },
      { figure: "calls refused", bound: { atMost: 10 }, value: log.refused },
      {
        figure: "seconds until 90 % of the rate is used again",
        bound: { atMost: 8 },
        value: log.recoveredAfter(restoredMs, perSecond * 0.9),
        digits: 1,
      },
    ];
  },
};

export const REFUSALS: readonly Scenario[] = [storm, quota];
