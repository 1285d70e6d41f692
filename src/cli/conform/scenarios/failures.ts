import type { Scenario } from "../stage.ts";
import { FOUR_AT_100, measureFor, recovery, shareOf, startLoad, worstSecond } from "./figures.ts";

const crash: Scenario = {
  ...FOUR_AT_100,
  name: "crash",
  title: "A replica is killed",
  about: "Four replicas have calls at 100/s. One of them is killed with SIGKILL.",
  async run(stage) {
    await startLoad(stage);
    await stage.kill(0);
    const period = await measureFor(stage, stage.isQuick ? 3_000 : 6_000);
    return [
      {
        figure: "share of the rate that the others use afterwards",
        bound: { atLeast: 0.97 },
        value: shareOf(stage, stage.plan.rate, period),
        digits: 3,
      },
      worstSecond(stage),
    ];
  },
};

const DOWN_MS = 1_000;

const restart: Scenario = {
  ...FOUR_AT_100,
  name: "restart",
  title: "Redis restarts without its data",
  about: "Four replicas have calls at 100/s. Redis is killed, and starts again after 1 s, empty.",
  published: "SGrondin/bottleneck #205, taskforcesh/bullmq #4585",
  killsRedis: true,
  async run(stage) {
    await startLoad(stage);
    await stage.redis!.kill();
    await stage.pause(DOWN_MS);
    await stage.redis!.start();
    const { fromMs } = await measureFor(stage, stage.isQuick ? 6_000 : 9_000);
    return [worstSecond(stage), recovery(stage, fromMs)];
  },
};

export const FAILURES: readonly Scenario[] = [crash, restart];
