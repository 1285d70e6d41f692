import { randomBytes } from "node:crypto";
import { availableParallelism } from "node:os";
import process from "node:process";
import { Redis } from "ioredis";
import { reasonOf } from "../../core/describe.ts";
import { StoreUnavailableError } from "../../core/errors.ts";
import { readVersion } from "../../insight/version.ts";
import { versionOfPeer } from "./limiters/import-peer.ts";
import { loadLimiter, type LimiterName } from "./limiters/limiters.ts";
import { startPrivateRedis } from "./private-redis.ts";
import { FAILURES } from "./scenarios/failures.ts";
import { RATES } from "./scenarios/rates.ts";
import { REFUSALS } from "./scenarios/refusals.ts";
import { removeKeys, runScenario, type Outcome, type Scenario, type StageSetup } from "./stage.ts";

export const SCENARIOS: readonly Scenario[] = [...RATES, ...REFUSALS, ...FAILURES];

/** The results of a run, for all forms of output. */
export interface Report {
  readonly at: string;
  readonly isQuick: boolean;
  readonly node: string;
  readonly redis: string;
  readonly cores: number;
  readonly limiters: readonly LimiterInfo[];
  readonly scenarios: readonly Pick<Scenario, "name" | "title" | "about" | "published">[];
  readonly outcomes: readonly Outcome[];
}

export interface LimiterInfo {
  readonly name: LimiterName;
  readonly title: string;
  readonly version: string;
}

interface ConformOptions {
  /** The user's Redis. Undefined starts a private one from `binary`. */
  readonly redisUrl: string | undefined;
  readonly binary: string | undefined;
  /** The start of the names of all keys. */
  readonly prefix: string;
  readonly limiters: readonly LimiterName[];
  readonly scenarios: readonly Scenario[];
  readonly isQuick: boolean;
  readonly signal: AbortSignal;
  readonly onProgress: (text: string) => void;
}

/** Runs scenarios on limiters, and removes what they leave in Redis. */
export async function conform(options: ConformOptions): Promise<Report> {
  const { binary, limiters, scenarios, isQuick } = options;
  const infos = await Promise.all(limiters.map(infoOf));
  await using own = options.redisUrl === undefined ? await startPrivateRedis(binary!) : undefined;
  const redisUrl = options.redisUrl ?? own!.url;
  const redis = await readServer(redisUrl);
  const prefix = `${options.prefix}-conform-${randomBytes(4).toString("hex")}`;
  const outcomes: Outcome[] = [];
  try {
    for (const info of infos) {
      outcomes.push(...(await runAll(info, { ...options, redisUrl, prefix })));
    }
  } finally {
    await removeKeys(redisUrl, prefix);
  }
  return {
    at: new Date().toISOString(),
    isQuick,
    node: process.version,
    redis,
    cores: availableParallelism(),
    limiters: infos,
    scenarios: scenarios.map(({ name, title, about, published }) => ({
      name,
      title,
      about,
      ...(published === undefined ? {} : { published }),
    })),
    outcomes,
  };
}

async function infoOf(name: LimiterName): Promise<LimiterInfo> {
  const { title, package: peer } = await loadLimiter(name);
  return { name, title, version: peer === undefined ? readVersion() : versionOfPeer(peer) };
}

/**
 * Runs all scenarios with one limiter. The long ones make few calls, so they run side by side. They start after the
 * others, because starting replicas takes CPU time, and would make the calls of a running scenario late.
 */
async function runAll(
  { name, title }: LimiterInfo,
  options: ConformOptions & { readonly redisUrl: string },
): Promise<readonly Outcome[]> {
  const { scenarios, onProgress } = options;
  const run = async (scenario: Scenario): Promise<Outcome> => {
    onProgress(`${title}: ${scenario.title}`);
    const prefix = `${options.prefix}-${scenario.name}`;
    try {
      return await runOne(scenario, { ...options, limiter: name, prefix });
    } catch (error) {
      // A peer that cannot start must not end the run of the others.
      if (name === "sluice" || options.signal.aborted) throw error;
      return notRun({ limiter: name, scenario: scenario.name }, `${title}: ${reasonOf(error)}`);
    }
  };
  const all: Outcome[] = [];
  for (const scenario of scenarios) if (scenario.isLong !== true) all.push(await run(scenario));
  const long = await Promise.allSettled(scenarios.filter(({ isLong }) => isLong === true).map(run));
  for (const result of long) {
    if (result.status === "rejected") throw result.reason;
    all.push(result.value);
  }
  return scenarios.map((scenario) => all.find((outcome) => outcome.scenario === scenario.name)!);
}

async function runOne(
  scenario: Scenario,
  options: Omit<StageSetup, "privateRedis"> & Pick<ConformOptions, "binary">,
): Promise<Outcome> {
  const names = { limiter: options.limiter, scenario: scenario.name };
  const { missingFeature } = await loadLimiter(options.limiter);
  const missing = missingFeature?.(scenario.plan(options.isQuick));
  if (missing !== undefined) return { ...notRun(names, missing), result: "no such feature" };
  if (scenario.killsRedis !== true) {
    return runScenario(scenario, { ...options, privateRedis: undefined });
  }
  if (options.binary === undefined) {
    const reason = "it kills Redis, so it runs only without --redis and $REDIS_URL";
    return notRun(names, reason);
  }
  await using server = await startPrivateRedis(options.binary);
  return await runScenario(scenario, { ...options, redisUrl: server.url, privateRedis: server });
}

function notRun(names: Pick<Outcome, "limiter" | "scenario">, reason: string): Outcome {
  return { ...names, result: "not run", reason, figures: [] };
}

/**
 * Returns the name and version of the server.
 *
 * @throws {@link StoreUnavailableError} when it does not reply.
 */
async function readServer(url: string): Promise<string> {
  const redis = new Redis(url, {
    lazyConnect: true,
    maxRetriesPerRequest: 0,
    retryStrategy: () => null,
  });
  // Keep the last error, because `connect` rejects only with "connection is closed".
  let lastError: unknown;
  redis.on("error", (error) => (lastError = error));
  try {
    await redis.connect();
    const info = await redis.info("server");
    const valkey = /^valkey_version:(\S+)/m.exec(info)?.[1];
    return valkey === undefined
      ? `Redis ${/^redis_version:(\S+)/m.exec(info)?.[1] ?? "unknown"}`
      : `Valkey ${valkey}`;
  } catch (error) {
    const cause = lastError ?? error;
    const message = `Redis at ${new URL(url).host} does not answer: ${reasonOf(cause)}`;
    throw new StoreUnavailableError(message, { cause });
  } finally {
    redis.disconnect();
  }
}
