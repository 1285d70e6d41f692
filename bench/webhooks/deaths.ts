import { startCrashingRedis } from "../../test/soak/stage/crashing-redis.ts";
import { sendThroughDeaths } from "../../test/support/webhooks/through-deaths.ts";
import { setTimeout as pause } from "node:timers/promises";
import type { Flags } from "../flags.ts";
import type { Bench } from "../fleet/run-load.ts";
import { formatNumber, rowOf } from "../promises.ts";
import type { Table } from "../table.ts";
import { LOCAL, openProducer, startSender } from "./stage.ts";

const DEATHS = 20;
const CONCURRENCY = 50;
const LOOK_EVERY_MS = 20;

/**
 * Counts lost and duplicate webhooks while the sender is killed twenty times, and Redis once. Redis syncs its log on
 * every write.
 */
export async function measureWebhookDeaths(_bench: Bench, { effort }: Flags): Promise<Table[]> {
  const redis = await startCrashingRedis();
  const producer = openProducer(redis.url);
  const beganMs = performance.now();
  const { lost, doubles, failed } = await sendThroughDeaths({
    hooks: producer.hooks,
    messages: effort.messages,
    deaths: DEATHS,
    async waitUntil(condition) {
      while (!(await condition())) await pause(LOOK_EVERY_MS);
    },
    startSender: () =>
      startSender({
        kind: "sluice",
        redisUrl: redis.url,
        concurrency: CONCURRENCY,
        options: LOCAL,
        lockMs: 10_000,
      }),
    async restartRedis() {
      await redis.kill();
      await redis.start();
    },
  });
  const seconds = (performance.now() - beganMs) / 1_000;
  await producer.close();
  await redis.stop();
  return [
    {
      title: `${formatNumber(effort.messages)} webhooks, while the sender (${CONCURRENCY} at once) is killed ${DEATHS} times, and Redis once`,
      rows: [
        rowOf("lost", lost, { bound: { atMost: 0 }, digits: 0 }),
        rowOf("given up", failed, { bound: { atMost: 0 }, digits: 0 }),
        rowOf("delivered twice", doubles, {
          bound: { atMost: (DEATHS + 1) * CONCURRENCY },
          digits: 0,
        }),
        rowOf("seconds that it took", seconds, { digits: 0 }),
      ],
    },
  ];
}
