import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { expect, it, onTestFinished } from "vitest";
import { children } from "../../support/children/child.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { postgresForFile } from "../../support/postgres/local-postgres.ts";
import { enqueueThroughDeaths } from "../../support/postgres/through-deaths.ts";
import { portOf, startOwnRedis } from "../../support/redis/for-one-test.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const JOBS = 6_000;
const DEATHS = 9;
const AOF = ["--appendonly", "yes", "--appendfsync", "always"];

const postgres = postgresForFile();
const processes = children();

it("each committed job is stored exactly once, when relays, workers and Redis are killed", async () => {
  const dir = await mkdtemp(join(tmpdir(), "sluice-outbox-"));
  onTestFinished(() => rm(dir, { recursive: true, force: true }));
  const first = await startOwnRedis({ args: AOF, dir });
  let redis = first;
  const prefix = "outbox";
  const file = join(dir, "runs.log");
  const start = (name: string, last: string) => {
    const child = processes.start(name, [first.url, prefix, last]);
    return {
      async kill() {
        child.signal("SIGKILL");
        await child.ended;
      },
    };
  };

  const { runsAgain, ...figures } = await enqueueThroughDeaths({
    redisUrl: first.url,
    prefix,
    databaseUrl: postgres.url,
    jobs: JOBS,
    deaths: DEATHS,
    file,
    waitUntil,
    startRelay: () => start("outbox-relay.ts", postgres.url),
    startWorker: () => start("outbox-worker.ts", file),
    async restartRedis() {
      process.kill(redis.pid!, "SIGKILL");
      await redis.stop();
      redis = await startOwnRedis({ args: AOF, dir, port: portOf(first) });
    },
  });

  reportFigures("relays of an outbox, workers and Redis are killed", {
    lost: figures.lost,
    again: runsAgain,
    jobs: JOBS,
    kills: DEATHS,
  });
  expect(figures).toEqual({ lost: 0, doubled: 0, phantoms: 0, outOfOrder: 0 });
});
