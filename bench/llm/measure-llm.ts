/**
 * Measures the presets of `sluice/llm` against fake providers. They count in the same way as the real providers, and
 * block callers that exceed a limit.
 */
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { EstimateErrors } from "../../test/support/llm/estimate-errors.ts";
import type { LlmCallerConfig, LlmCallerReport } from "../../test/support/processes/llm-caller.ts";
import type { Flags } from "../flags.ts";
import type { Bench } from "../fleet/run-load.ts";
import { PROMISED_OF_LLM as PROMISED, rowOf } from "../promises.ts";
import type { Table } from "../table.ts";
import type { ProviderConfig, ProviderSays, QuotaGiven } from "./provider-process.ts";

const PROVIDER = fileURLToPath(new URL("./provider-process.ts", import.meta.url));
const CALLER = fileURLToPath(
  new URL("../../test/support/processes/llm-caller.ts", import.meta.url),
);
const PROCESSES = 4;
const AT_ONCE = 25;
/**
 * The number of answers after which estimates are judged. The figures start once the calls that waited at that time
 * have ended.
 */
const LEARNING = 100;
/** The length of the providers' minute in this benchmark, in seconds. */
const PERIOD_S = 3;
/**
 * The seconds that the preset's sliding log covers. Units that start in a burst are available again within this time,
 * so the used share is exact over whole periods of the log.
 */
const LOG_S = PERIOD_S * (1 + 1 / 60);

interface Case {
  readonly provider: LlmCallerConfig["provider"];
  readonly limits: LlmCallerConfig["limits"];
  readonly quotas: ProviderConfig["quotas"];
  /** The unit that limits the load, and its amount per second. */
  readonly binds: readonly [unit: string, perS: number];
  readonly most: number;
}

const tokens = (count: number): string => `${count}/${PERIOD_S}s`;
const flows = (count: number): readonly QuotaGiven[] => [["flowing", count, PERIOD_S]];

const CASES: readonly Case[] = [
  {
    provider: "openai",
    limits: { requests: tokens(600), tokens: tokens(90_000) },
    quotas: { calls: flows(600), tokens: flows(90_000) },
    binds: ["tokens", 30_000],
    most: 2_000,
  },
  {
    provider: "anthropic",
    limits: { requests: tokens(600), input: tokens(60_000), output: tokens(90_000) },
    quotas: { calls: flows(600), input: flows(60_000), output: flows(90_000) },
    binds: ["input", 20_000],
    most: 2_000,
  },
  {
    provider: "azure",
    limits: { requests: "12000/min", tokens: tokens(120_000) },
    quotas: {
      calls: [
        ["sliding", 200, 1],
        ["sliding", 2_000, 10],
      ],
      tokens: [["windowed", 120_000, PERIOD_S]],
    },
    binds: ["tokens", 40_000],
    most: 2_000,
  },
  {
    provider: "azure",
    limits: { requests: "3000/min", tokens: "60000000/min" },
    quotas: {
      calls: [
        ["sliding", 50, 1],
        ["sliding", 500, 10],
      ],
      tokens: [["windowed", 60_000_000, 60]],
    },
    binds: ["calls", 50],
    most: 1_000,
  },
  {
    provider: "bedrock",
    limits: { requests: tokens(600), tokens: tokens(90_000) },
    quotas: { calls: flows(600), tokens: flows(90_000) },
    binds: ["tokens", 30_000],
    most: 2_000,
  },
];

export async function measureLlm(bench: Bench, { contenders, effort }: Flags): Promise<Table[]> {
  if (!contenders.includes("sluice")) return [];
  const tables: Table[] = [];
  for (const [index, each] of CASES.entries()) {
    tables.push(
      await measureCase(bench, each, { index, periods: Math.ceil(effort.seconds / 1.5) }),
    );
  }
  return tables;
}

async function measureCase(
  { redisUrl: redis }: Bench,
  { provider, limits, quotas, binds: [unit, perS], most }: Case,
  { index, periods }: { readonly index: number; readonly periods: number },
): Promise<Table> {
  const api = start(PROVIDER, { provider, quotas } satisfies ProviderConfig);
  const [url] = (await once(api, "message")) as [string];
  const common = { redis, prefix: `llm-${index}`, provider, limits, url };
  const callers = Array.from({ length: PROCESSES }, (_, seed) =>
    start(CALLER, {
      ...common,
      seed,
      atOnce: AT_ONCE,
      least: most / 1_000,
      most,
    } satisfies LlmCallerConfig),
  );
  await Promise.all(callers.map((caller) => once(caller, "message")));

  for (const caller of callers) caller.send("go");
  await pause(LOG_S * 1_000);
  while ((await ask(api)).answers < LEARNING) await pause(100);
  for (const caller of callers) caller.send("measure");
  while ((await ask(api)).answers < LEARNING + PROCESSES * AT_ONCE) await pause(100);
  const { refusals: before } = await ask(api);
  await pause(periods * LOG_S * 1_000);
  const said = await ask(api);
  const reports = await Promise.all(callers.map(stop));
  api.disconnect();

  const failures = reports.flatMap((report) => report.failures);
  if (said.refusals.length === 0 && failures.length > 0) throw new Error(failures[0]);
  const errors = unitsOf(reports).map((each) => sumOf(reports, each));
  const used = (said.taken[unit] ?? 0) / said.seconds / perS;
  return {
    title: `${provider}: ${describe(limits)}, of which ${unit} bind; ${PROCESSES} processes, prompts and answers of 1:1,000`,
    rows: [
      rowOf(`share of the limit of ${unit} that is used`, used, { bound: PROMISED.share }),
      rowOf("calls that were refused", said.refusals.length, {
        bound: PROMISED.refusals,
        digits: 0,
      }),
      rowOf("mean error of the estimate, of what calls take", worst(errors, byTokens), {
        bound: PROMISED.error,
      }),
      rowOf("the same, the mean of each call's own", worst(errors, byCalls)),
      rowOf("calls a second", (said.taken["calls"] ?? 0) / said.seconds, { digits: 1 }),
      rowOf("refused before it was measured", before.length, { digits: 0 }),
      rowOf("the longest standstill of the provider, ms", said.stillMs, { digits: 0 }),
    ],
  };
}

function describe(limits: LlmCallerConfig["limits"]): string {
  return Object.entries(limits)
    .map(([name, rate]) => `${rate} ${name}`)
    .join(", ");
}

function start(path: string, config: object): ChildProcess {
  const child = fork(path, [JSON.stringify(config)]);
  child.once("exit", (code) => {
    if (code !== 0) throw new Error(`A process of the bench ended with ${code}`);
  });
  return child;
}

async function ask(api: ChildProcess): Promise<ProviderSays> {
  const answer = once(api, "message") as Promise<[ProviderSays]>;
  api.send("say");
  return (await answer)[0];
}

async function stop(caller: ChildProcess): Promise<LlmCallerReport> {
  const answer = once(caller, "message") as Promise<[LlmCallerReport]>;
  caller.send("stop");
  return (await answer)[0];
}

function unitsOf(reports: readonly LlmCallerReport[]): string[] {
  return [...new Set(reports.flatMap(({ errors }) => Object.keys(errors)))];
}

function sumOf(reports: readonly LlmCallerReport[], unit: string): EstimateErrors {
  const own = reports.flatMap(({ errors }) => errors[unit] ?? []);
  return own.reduce((sum, each) => ({
    calls: sum.calls + each.calls,
    taken: sum.taken + each.taken,
    off: sum.off + each.off,
    parts: sum.parts + each.parts,
  }));
}

/** Returns the figure of the unit with the worst estimates. */
function worst(
  errors: readonly EstimateErrors[],
  figureOf: (of: EstimateErrors) => number,
): number {
  return Math.max(...errors.map(figureOf));
}

function byTokens({ off, taken }: EstimateErrors): number {
  return off / taken;
}

function byCalls({ parts, calls }: EstimateErrors): number {
  return parts / calls;
}
