/** Runs a worker and its producer, and starts everything that they need: `npm run example -- llm`. */
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import type { ChildProcess } from "node:child_process";
import process from "node:process";
import { startRedis } from "../test/support/redis/local-redis.ts";
import { endChild, startChild } from "./shared/child.ts";
import { createCleanup, removeKeys } from "./shared/cleanup.ts";
import { stopSignals } from "./shared/stop-signals.ts";
import { PAIRS, type Pair } from "./stand-ins/pairs.ts";

const BAD_USAGE = 2;

const [name = ""] = process.argv.slice(2);
const pair = Object.hasOwn(PAIRS, name) ? PAIRS[name] : undefined;
if (pair === undefined) refuse(`Say which: npm run example -- ${Object.keys(PAIRS).join(" | ")}`);
if (/^[sr]k_live_/.test(process.env["STRIPE_SECRET_KEY"] ?? "")) {
  refuse(
    "STRIPE_SECRET_KEY is a live key, and an example must not charge anyone: give a test key.",
  );
}
const stop = stopSignals();
const code = await run(pair, stop);
// The child processes end with this process, and so does a Redis that it started.
process.exit(process.exitCode ?? code);

async function run(pair: Pair, stop: AbortSignal): Promise<number> {
  await using cleanup = createCleanup();
  const redis = await startRedis({ orInMemory: true });
  cleanup.add(() => redis.stop());
  const prefix = `sluice-example-${randomUUID().slice(0, 8)}`;
  cleanup.add(() => removeKeys(redis.url, prefix));
  const where = { REDIS_URL: redis.url, SLUICE_PREFIX: prefix };
  const needed = Object.entries(pair.env?.() ?? {}).filter(([name]) => !process.env[name]);
  const given = { ...Object.fromEntries(needed), ...(await standInEnv(pair, cleanup)) };
  const env = { ...where, LOG_LEVEL: "debug", ...given };

  const worker = startChild(pair.worker, { env });
  show("worker", worker);
  cleanup.add(() => endChild(worker));
  const producer = startChild(pair.producer, { env });
  show("producer", producer);
  cleanup.add(() => endChild(producer));
  // Stops when either process ends, because without its worker the producer would wait forever.
  const ended = [producer, worker].map((child) => once(child, "close", { signal: stop }));
  const [code] = (await Promise.race(ended).catch(() => [1])) as [number | null];
  return code === 0 && worker.exitCode === null ? 0 : 1;
}

async function standInEnv(
  { needs, startStandIn, standInEnv: envOf }: Pair,
  cleanup: ReturnType<typeof createCleanup>,
): Promise<Readonly<Record<string, string>>> {
  if (process.env[needs]) return {};
  const standIn = await startStandIn();
  cleanup.add(() => standIn.close());
  print(`${needs} is not set, so a stand-in on ${standIn.url} answers.`);
  return envOf(standIn.url);
}

function show(who: string, child: ChildProcess): void {
  for (const stream of [child.stdout!, child.stderr!]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      for (const line of text.trimEnd().split("\n")) print(`${who.padEnd(8)}  ${line}`);
    });
  }
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

function refuse(problem: string): never {
  process.stderr.write(`${problem}\n`);
  process.exit(BAD_USAGE);
}
