import { execFile } from "node:child_process";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Flags } from "../flags.ts";
import { median } from "../fleet/measure.ts";
import { formatNumber } from "../promises.ts";
import type { Bench } from "../fleet/run-load.ts";
import type { Row, Table } from "../table.ts";

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/**
 * The code that a new process loads. Each runs in a separate process, alternately. A queue loads BullMQ when it is
 * created.
 */
const LOADED = {
  sluice: 'await import("sluice");',
  withQueue: 'await import("sluice"); createRequire(`${process.cwd()}/`)("bullmq");',
  bullmq: 'await import("bullmq");',
  ioredis: 'await import("ioredis");',
} as const;
type Loaded = keyof typeof LOADED;

/** The cost from the start of the `import` until it is done. */
interface Cost {
  readonly wallMs: number;
  readonly cpuMs: number;
}

/** Measures how long the first import of the built package takes, compared with that of BullMQ. */
export async function measureImports(_bench: Bench, { effort }: Flags): Promise<Table[]> {
  const costs: Record<Loaded, Cost[]> = { sluice: [], withQueue: [], bullmq: [], ioredis: [] };
  for (let turn = 0; turn < effort.imports; turn += 1) {
    for (const loaded of Object.keys(LOADED) as Loaded[]) {
      costs[loaded].push(await load(LOADED[loaded]));
    }
  }
  const of = (loaded: Loaded, what: keyof Cost): number =>
    median(costs[loaded].map((cost) => cost[what]));
  const row = (figure: string, loaded: Loaded, what: keyof Cost): Row => ({
    figure,
    values: {
      sluice: formatNumber(of(loaded, what), 0),
      bullmq: formatNumber(of("bullmq", what), 0),
    },
  });
  const wall: Row = {
    ...row("first import, median, ms", "sluice", "wallMs"),
    promise: "≤ BullMQ's",
    isKept: of("sluice", "wallMs") <= of("bullmq", "wallMs"),
  };
  return [
    {
      title: `The first import of the package, ${effort.imports} new processes each`,
      rows: [
        wall,
        row("CPU of it, median, ms", "sluice", "cpuMs"),
        row("with BullMQ, as a queue needs it, median, ms", "withQueue", "wallMs"),
        {
          figure: "of that ioredis, median, ms",
          values: { sluice: formatNumber(of("ioredis", "wallMs"), 0) },
        },
      ],
    },
  ];
}

async function load(code: string): Promise<Cost> {
  const measured = `
    import { createRequire } from "node:module";
    const before = process.cpuUsage();
    const startedAtMs = performance.now();
    ${code}
    const wallMs = performance.now() - startedAtMs;
    const { user, system } = process.cpuUsage(before);
    console.log(JSON.stringify({ wallMs, cpuMs: (user + system) / 1_000 }));
  `;
  const args = ["--input-type=module", "--eval", measured];
  const { stdout } = await run(process.execPath, args, { cwd: ROOT });
  return JSON.parse(stdout) as Cost;
}
