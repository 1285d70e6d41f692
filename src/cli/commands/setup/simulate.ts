import { readFile } from "node:fs/promises";
import type { Command } from "commander";
import { reasonOf } from "../../../core/describe.ts";
import { InvalidOptionError } from "../../../core/errors.ts";
import type { Arrival, SimulateOptions, Simulation } from "../../../entries/simulate/index.ts";
import { PRIORITIES, type Priority } from "../../../core/input/options.ts";
import { readRules } from "../../../rules/read.ts";
import {
  missingName,
  onOneLine,
  parseDuration,
  print,
  table,
  withSluice,
  type Io,
} from "../../io.ts";
import { countOf } from "../../options.ts";

interface Given {
  readonly rules: string;
  readonly bucket?: string;
  readonly fromHistory?: string;
  readonly last: string;
  readonly arrivals?: string;
  readonly replicas: string;
  readonly limit?: string;
  readonly latency: string;
  readonly seed: string;
}

const WHERE = "sluice simulate";
const FROM_COUNTS =
  "The arrivals are drawn at random from the counts of each ten seconds. The history knows no keys, costs or priorities.";

export function addSimulate(program: Command, io: Io): void {
  program
    .command("simulate")
    .description("shows how long calls would wait under the limits of a rules file")
    .requiredOption("--rules <file>", "the rules file with the limits to try")
    .option("--from-history <bucket>", "take the calls from the history of this bucket in Redis")
    .option("--last <time>", "how much of the history, up to 24h", "24h")
    .option("--arrivals <file>", "take the calls from a CSV file: at_ms,key,cost,priority")
    .option("--bucket <name>", "the entry of the rules file; defaults to the bucket of the history")
    .option("--replicas <count>", "the number of processes that share the bucket", "1")
    .option("--limit <rate>", "what the API accepts, such as 100/s; defaults to all calls")
    .option("--latency <time>", "how long a call runs", "50ms")
    .option("--seed <number>", "draws other random numbers", "1")
    .addHelpText(
      "after",
      "\nOnly --from-history needs Redis.\n\nExample: sluice simulate --rules new.yaml --from-history stripe --last 24h",
    )
    .action(async (given: Given, command: Command) => {
      const { policy, bucket } = await policyOf(given);
      const calls = await callsOf(given, command, io);
      const { simulate } = await import("../../../entries/simulate/index.ts");
      const simulation = simulate({
        policy,
        ...calls,
        replicas: countOf("--replicas", given.replicas),
        seed: countOf("--seed", given.seed),
        downstream: {
          latencyMs: parseDuration("--latency", given.latency),
          ...(given.limit !== undefined && { limit: given.limit }),
        },
      });
      const note = calls.history === undefined ? undefined : FROM_COUNTS;
      print(command, io, { bucket, ...simulation, note }, describe);
    });
}

async function policyOf({ rules: file, bucket, fromHistory }: Given) {
  const { buckets } = readRules(file, await textOf("--rules", file));
  const [only, ...others] = buckets.keys();
  const name = bucket ?? fromHistory ?? (others.length === 0 ? only : undefined);
  const policy = name === undefined ? undefined : buckets.get(name);
  if (policy !== undefined) return { policy, bucket: name! };
  const remedy = `give the name of a bucket in ${file}: ${[...buckets.keys()].join(", ")}`;
  throw new InvalidOptionError({ where: WHERE, option: "--bucket", value: name, remedy });
}

async function callsOf(
  { fromHistory, arrivals, last }: Given,
  command: Command,
  io: Io,
): Promise<Pick<SimulateOptions, "arrivals" | "history">> {
  if ((fromHistory === undefined) === (arrivals === undefined)) {
    const remedy = "give --from-history or --arrivals, one of them";
    throw new InvalidOptionError({ where: WHERE, option: "--arrivals", value: arrivals, remedy });
  }
  if (arrivals !== undefined) {
    return { arrivals: readArrivals(arrivals, await textOf("--arrivals", arrivals)) };
  }
  const sinceMs = Date.now() - parseDuration("--last", last);
  return withSluice(command, io, async (sluice) => {
    const bucket = await sluice.find(fromHistory!);
    if (bucket === undefined)
      throw await missingName(sluice, "bucket", fromHistory!, "the name of its bucket");
    const history = await bucket.history({ sinceMs });
    if (history.points.length > 0) return { history };
    const remedy = "no call started in this time; give another bucket, or a longer --last";
    throw new InvalidOptionError({
      where: WHERE,
      option: "--from-history",
      value: fromHistory,
      remedy,
    });
  });
}

async function textOf(option: string, file: string): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    const remedy = `the file cannot be read (${reasonOf(error)})`;
    throw new InvalidOptionError({ where: WHERE, option, value: file, remedy });
  }
}

const COLUMNS = ["at_ms", "key", "cost", "priority"];

/** Reads arrivals from a CSV file whose first line names the columns. */
function readArrivals(file: string, text: string): Arrival[] {
  const [head = "", ...lines] = text.split(/\r?\n/).filter((line) => line.trim() !== "");
  const names = head.split(",").map((name) => name.trim());
  const unknown = names.find((name) => !COLUMNS.includes(name));
  if (unknown !== undefined || !names.includes("at_ms")) {
    const remedy = `begin ${file} with a line that names its columns: at_ms, and any of key, cost and priority`;
    throw new InvalidOptionError({ where: WHERE, option: "--arrivals", value: head, remedy });
  }
  const rows = lines.map((line) => {
    const cells = line.split(",");
    return Object.fromEntries(names.map((name, index) => [name, cells[index]?.trim() ?? ""]));
  });
  const arrivals = rows.map(({ at_ms: atMs, key, cost, priority }, index): Arrival => {
    const at = Number(atMs);
    const units = cost === undefined || cost === "" ? 1 : Number(cost);
    const rank = priority === undefined || priority === "" ? "normal" : (priority as Priority);
    if (atMs === "" || !(at >= 0) || !(units >= 1) || !PRIORITIES.includes(rank)) {
      const remedy = `line ${index + 2} of ${file} needs a time in ms, a cost from 1, and a priority such as "low"`;
      const value = lines[index]!;
      throw new InvalidOptionError({ where: WHERE, option: "--arrivals", value, remedy });
    }
    return {
      atMs: at,
      cost: units,
      priority: rank,
      ...(key !== undefined && key !== "" && { key }),
    };
  });
  const sorted = arrivals.sort((a, b) => a.atMs - b.atMs);
  const firstMs = sorted[0]?.atMs ?? 0;
  return sorted.map((arrival) => ({ ...arrival, atMs: arrival.atMs - firstMs }));
}

/** The most keys that the table shows. */
const MOST_KEYS = 10;

function describe({
  bucket,
  note,
  ...simulation
}: Simulation & { readonly bucket: string; readonly note: string | undefined }): string {
  const { calls, started, waiting, refused, endMs, waits, byPriority, byKey } = simulation;
  const { bindings, limits, downstream } = simulation;
  const rowOf = (name: string, each: typeof waits): string[] => [
    name,
    String(each.calls),
    ...[each.p50Ms, each.p90Ms, each.p99Ms, each.maxMs].map((ms) => `${ms.toFixed(0)} ms`),
  ];
  const rows = [
    rowOf("all", waits),
    ...Object.entries(byPriority).map(([priority, each]) => rowOf(priority, each)),
    ...byKey.slice(0, MOST_KEYS).map(({ key, ...each }) => rowOf(`key ${String(key)}`, each)),
  ];
  return [
    `${bucket}: ${started} of ${calls} calls start within ${(endMs / 1_000).toFixed(0)} s; ${waiting} still wait, ${refused} do not fit into a budget.`,
    table(["calls", "number", "half wait", "90 %", "99 %", "longest"], rows),
    ...bindings.map(({ binding, calls: delayed }) => `${binding} delays ${delayed} calls.`),
    ...limits.map(({ limit, used }) => `${limit} is used to ${(used * 100).toFixed(1)} %.`),
    `The API refuses ${downstream.refusals} calls. It gets at most ${downstream.worstSecond} in one second.`,
    ...(note === undefined ? [] : [note]),
  ]
    .map((line) => (line.includes("\n") ? line : onOneLine(line)))
    .join("\n");
}
