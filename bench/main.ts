import { writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { compareBuilds } from "./compare/compare-builds.ts";
import { isComparison } from "./compare/compare-flags.ts";
import { measureAdaptive } from "./parts/adaptive.ts";
import { measureBacklog } from "./parts/backlog.ts";
import { measureCaps } from "./parts/caps.ts";
import { measureEveryday } from "./parts/everyday.ts";
import { measureImports } from "./parts/cold-import.ts";
import { readFlags, type Flags, type Part } from "./flags.ts";
import { describeRun, withFreshBench } from "./fleet/fresh-bench.ts";
import { measureFlows } from "./parts/flows.ts";
import { measureGroups } from "./parts/groups.ts";
import { measureJobs } from "./parts/jobs.ts";
import { measureKeys } from "./parts/keys.ts";
import { measureLevels } from "./parts/levels.ts";
import { measureLimits } from "./parts/limits.ts";
import { measureMemory } from "./parts/memory.ts";
import { measureMetrics } from "./parts/metrics.ts";
import { measureOutbox, measureOutboxDeaths } from "./parts/outbox.ts";
import { measureOutOfReach } from "./parts/out-of-reach.ts";
import type { Bench } from "./fleet/run-load.ts";
import { countMissed, formatTable, type Table } from "./table.ts";
import { measureLlm } from "./llm/measure-llm.ts";
import { measureGateway } from "./service/gateway.ts";
import { measureService } from "./service/measure-service.ts";
import { measureTake } from "./service/take.ts";
import { measureWebhookDeaths } from "./webhooks/deaths.ts";
import { measureWebhooks } from "./webhooks/measure-webhooks.ts";
import { measureSimulate } from "./parts/simulate.ts";
import { measureTries } from "./parts/tries.ts";

const RESULTS = fileURLToPath(new URL("./RESULTS.md", import.meta.url));

/** The function that measures each part, in the order of the run. */
const MEASURES: Readonly<Record<Part, (bench: Bench, flags: Flags) => Promise<Table[]>>> = {
  caps: measureCaps,
  everyday: measureEveryday,
  jobs: measureJobs,
  "out-of-reach": measureOutOfReach,
  memory: measureMemory,
  limits: measureLimits,
  levels: measureLevels,
  tries: measureTries,
  keys: measureKeys,
  backlog: measureBacklog,
  adaptive: measureAdaptive,
  groups: measureGroups,
  flows: measureFlows,
  imports: measureImports,
  simulate: measureSimulate,
  metrics: measureMetrics,
  webhooks: measureWebhooks,
  "webhook-deaths": measureWebhookDeaths,
  outbox: measureOutbox,
  "outbox-deaths": measureOutboxDeaths,
  service: measureService,
  take: measureTake,
  gateway: measureGateway,
  llm: measureLlm,
};

async function measureAll(flags: Flags): Promise<Table[]> {
  const tables: Table[] = [];
  for (const [part, measurePart] of Object.entries(MEASURES)) {
    if (!flags.parts.some((wanted) => wanted === part)) continue;
    for (const table of await withFreshBench((bench) => measurePart(bench, flags))) {
      console.log(`${formatTable(table)}\n`);
      tables.push(table);
    }
  }
  return tables;
}

async function measurePromises(args: readonly string[]): Promise<void> {
  const flags = readFlags(args);
  const heading = `${flags.isQuick ? "Quick" : "Full"} run, ${await withFreshBench(describeRun)}`;
  console.log(`${heading}\n`);
  const tables = await measureAll(flags);
  const missed = countMissed(tables);
  const verdict = missed === 0 ? "Every promise was kept." : `${missed} promises were missed.`;
  console.log(verdict);
  if (flags.isWritten) {
    const parts = ["# Results", heading, ...tables.map(formatTable), verdict];
    await writeFile(RESULTS, `${parts.join("\n\n")}\n`);
  }
}

const args = process.argv.slice(2);
if (isComparison(args)) process.exitCode = await compareBuilds(args);
else await measurePromises(args);
