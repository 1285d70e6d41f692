/**
 * `enqueue`: stores each line of a file as a job. A line without an id gets the same job id in
 * every run of the same file, so it is safe to run the command again.
 */
import { createHash, randomUUID } from "node:crypto";
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import process from "node:process";
import { createInterface } from "node:readline";
import type { Command } from "commander";
import { InvalidOptionError } from "../../core/errors.ts";
import type { EnqueueOptions } from "../../queue/options.ts";
import type { Queue } from "../../queue/queue.ts";
import { countOf } from "../options.ts";
import { findQueue, onOneLine, print, withSluice, type Io } from "../io.ts";

interface EnqueueGiven {
  readonly file: string;
  readonly run?: string;
  readonly from: string;
}

export function addEnqueue(program: Command, io: Io): void {
  program
    .command("enqueue <queue>")
    .description(
      "enqueues a job for each line of a file; a line is JSON with the data and options of the job",
    )
    .requiredOption("--file <path>", 'one {"data": …, "key": …} a line; - reads standard input')
    .option(
      "--run <name>",
      "a name for this import, part of the ids of its jobs; defaults to the file and its time",
    )
    .option("--from <line>", "the first line to enqueue", "1")
    .addHelpText(
      "after",
      `
A line has "data" and any option of a job: "id", "key", "name", "priority", "delayMs", "maxWaitMs", "attempts", …
A line without an id gets one from the run and its number. A job that the queue still has is not enqueued again.
If the command fails, it prints the line from which to continue.

Example: sluice enqueue charges --file jobs.jsonl`,
    )
    .action(async (name: string, options: EnqueueGiven, command: Command) => {
      const from = countOf("--from", options.from);
      const run = options.run ?? (await runOf(options.file));
      await withSluice(command, io, async (sluice) => {
        const queue = await findQueue(sluice, name);
        const count = await enqueueLines({ queue, io, from, run, lines: linesOf(options.file) });
        print(command, io, count, ({ enqueued, alreadyThere }) => {
          return `${enqueued} enqueued, ${alreadyThere} were there already.`;
        });
      });
    });
}

/**
 * Returns the id of the run. An unchanged file is the same run, and each use of standard input is a
 * new run.
 */
async function runOf(file: string): Promise<string> {
  if (file === "-") return randomUUID();
  try {
    const { mtimeMs, size } = await stat(file);
    return `${resolve(file)} ${mtimeMs} ${size}`;
  } catch (cause) {
    const remedy = "name a file that can be read, or - for standard input";
    throw new InvalidOptionError({ where: WHERE, option: "--file", value: file, remedy, cause });
  }
}

const WHERE = "sluice enqueue";
const AT_ONCE = 500;
const PROGRESS_MS = 500;

function linesOf(file: string): AsyncIterable<string> {
  const input = file === "-" ? process.stdin : createReadStream(file);
  return createInterface({ input, crlfDelay: Infinity });
}

/** A line of the file that contains a job. */
interface Line {
  readonly number: number;
  readonly data: unknown;
  readonly options: EnqueueOptions;
}

interface Count {
  readonly enqueued: number;
  readonly alreadyThere: number;
}

async function enqueueLines({
  queue,
  io,
  from,
  run,
  lines,
}: {
  readonly queue: Queue<unknown>;
  readonly io: Io;
  readonly from: number;
  readonly run: string;
  readonly lines: AsyncIterable<string>;
}): Promise<Count> {
  let [number, enqueued, alreadyThere, printedAtMs] = [0, 0, 0, -Infinity];
  let batch: Line[] = [];
  // Print the run, because a batch that is sent again with the same run stores no job twice.
  const goOn = (line: number): string => `Go on with --run '${onOneLine(run)}' --from ${line}.`;

  async function flush(): Promise<void> {
    if (batch.length === 0) return;
    const [first, last] = [batch[0]!.number, batch.at(-1)!.number];
    try {
      const jobs = await queue.enqueueMany(
        batch.map(({ data }) => data),
        (_data, index) => batch[index]!.options,
      );
      const fresh = jobs.filter(({ isNew }) => isNew).length;
      enqueued += fresh;
      alreadyThere += jobs.length - fresh;
    } catch (error) {
      const which = first === last ? `Line ${first}` : `Of lines ${first} to ${last}`;
      io.err(`${which}, not all could be enqueued. ${goOn(first)}\n`);
      throw error;
    }
    batch = [];
    if (io.errIsTty !== true || performance.now() - printedAtMs < PROGRESS_MS) return;
    printedAtMs = performance.now();
    io.err(`\r${number} lines, ${enqueued} enqueued`);
  }

  for await (const text of lines) {
    number += 1;
    if (number < from || text.trim() === "") continue;
    const line = await readLine(text, { number, run }).catch(async (error: unknown) => {
      // Store the jobs of the valid lines before the invalid one.
      await flush();
      io.err(`${goOn(number)}\n`);
      throw error;
    });
    batch.push(line);
    if (batch.length === AT_ONCE) await flush();
  }
  await flush();
  if (io.errIsTty === true) io.err("\r");
  return { enqueued, alreadyThere };
}

async function readLine(
  text: string,
  { number, run }: { readonly number: number; readonly run: string },
): Promise<Line> {
  const option = `line ${number}`;
  const remedy = 'give each line an object with its data: {"data": {"order": 17}, "key": "acme"}';
  let read: unknown;
  try {
    read = JSON.parse(text);
  } catch (cause) {
    throw new InvalidOptionError({ where: WHERE, option, value: text, remedy, cause });
  }
  if (typeof read !== "object" || read === null || !("data" in read)) {
    throw new InvalidOptionError({ where: WHERE, option, value: text, remedy });
  }
  const { data, ...options } = read as { readonly data: unknown } & EnqueueOptions;
  return {
    number,
    data,
    options: { ...options, id: options.id ?? idOf(run, number) } as EnqueueOptions,
  };
}

function idOf(run: string, number: number): string {
  return `file-${createHash("sha256").update(`${run} ${number}`).digest("hex").slice(0, 32)}`;
}
