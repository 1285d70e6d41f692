import type { Scenario } from "../stage.ts";

const crash: Scenario = {
  name: "crash",
  title: "A replica is killed",
  about: "Four replicas have calls at 100/s. One of them is killed with SIGKILL.",
  replicas: 4,
  plan: () => ({ rate: { calls: 100, seconds: 1 } }),
  async run({ loop, pause, kill, log, plan, isQuick }) {
    loop({ callers: 10 });
    await pause(2_000);
    const fromMs = log.nowMs();
    await kill(0);
    await pause(isQuick ? 3_000 : 6_000);
    const period = { fromMs, toMs: log.nowMs() };
    const allowed = (plan.rate.calls * (period.toMs - fromMs)) / 1_000;
    return [
      {
        figure: "share of the rate that the others use afterwards",
        bound: { atLeast: 0.97 },
        value: log.accepted(period) / allowed,
        digits: 3,
      },
      {
        figure: "calls in the worst second, of the rate",
        bound: { atMost: 1.01 },
        value: log.worstSecond() / plan.rate.calls,
        digits: 2,
      },
    ];
  },
};

const DOWN_MS = 1_000;

const restart: Scenario = {
  name: "restart",
  title: "Redis restarts without its data",
  about: "Four replicas have calls at 100/s. Redis is killed, and starts again after 1 s, empty.",
  published: "SGrondin/bottleneck #205, taskforcesh/bullmq #4585",
  replicas: 4,
  killsRedis: true,
  plan: () => ({ rate: { calls: 100, seconds: 1 } }),
  async run({ loop, pause, redis, log, plan, isQuick }) {
    loop({ callers: 10 });
    await pause(2_000);
    await redis!.kill();
    await pause(DOWN_MS);
    await redis!.start();
    const fromMs = log.nowMs();
    await pause(isQuick ? 6_000 : 9_000);
    return [
      {
        figure: "calls in the worst second, of the rate",
        bound: { atMost: 1.01 },
        value: log.worstSecond() / plan.rate.calls,
        digits: 2,
      },
      {
        figure: "seconds until 90 % of the rate is used again",
        bound: { atMost: 5 },
        value: log.recoveredAfter(fromMs, plan.rate.calls * 0.9),
        digits: 1,
      },
    ];
  },
};

export const FAILURES: readonly Scenario[] = [crash, restart];
