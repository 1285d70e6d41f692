import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { expect, it, onTestFinished } from "vitest";
import { createWebhooks } from "sluice/webhooks";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { openSluice, portOf, startOwnRedis } from "../../support/redis/for-one-test.ts";
import { KEYS, LOCAL } from "../../support/webhooks/open-hooks.ts";
import { sendThroughDeaths } from "../../support/webhooks/through-deaths.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const MESSAGES = 1_500;
const DEATHS = 5;
const CONCURRENCY = 20;
const AOF = ["--appendonly", "yes", "--appendfsync", "always"];

const scripts = scriptProcesses();

it("all webhooks arrive, and only those in flight arrive twice, when senders and Redis are killed", async () => {
  const dir = await mkdtemp(join(tmpdir(), "sluice-hooks-"));
  onTestFinished(() => rm(dir, { recursive: true, force: true }));
  const first = await startOwnRedis({ args: AOF, dir });
  const hooks = createWebhooks(openSluice({ redis: first.url }), LOCAL);

  const { lost, doubles, failed } = await sendThroughDeaths({
    hooks,
    messages: MESSAGES,
    deaths: DEATHS,
    waitUntil,
    startSender() {
      const sender = scripts.start("workers/webhook-worker.ts", {
        env: {
          REDIS_URL: first.url,
          SLUICE_WEBHOOK_KEYS: KEYS,
          SLUICE_ALLOW: "127.0.0.0/8",
          SLUICE_ALLOW_HTTP: "true",
          SLUICE_CONCURRENCY: String(CONCURRENCY),
          SLUICE_LOCK_MS: "5000",
        },
      });
      return {
        async kill() {
          sender.signal("SIGKILL");
          await sender.ended;
        },
      };
    },
    async restartRedis() {
      process.kill(first.pid!, "SIGKILL");
      await first.stop();
      await startOwnRedis({ args: AOF, dir, port: portOf(first) });
    },
  });

  reportFigures("senders of webhooks are killed, and Redis once", {
    again: doubles,
    messages: MESSAGES,
    "senders killed": DEATHS,
  });
  expect({ lost, failed }).toEqual({ lost: 0, failed: 0 });
  // What was under way at each death, and when Redis died.
  expect(doubles).toBeLessThanOrEqual((DEATHS + 1) * CONCURRENCY);
});
