import { statSync } from "node:fs";
import { createRequire as requireFrom } from "node:module";
import { dirname, join, resolve } from "node:path";
import process from "node:process";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { ChildPool } from "bullmq";
import { reasonOf } from "../core/describe-value.ts";
import { InvalidOptionError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import { runInChild } from "./child-run.ts";
import type { Handler } from "./handler.ts";
import { loadBullmq } from "./load-bullmq.cjs";
import { UNSTORABLE } from "./outcome.ts";
import { HANDLER_FILE, type ChildAnswer } from "./sandbox-protocol.ts";

/** What does the jobs of a worker, and the end of it. */
export interface OpenHandler<Data, Result> {
  readonly handle: Handler<Data, Result>;
  /** Undefined if a job can begin at once, else what to wait for before its slot is drawn: a process starts too slowly for a slot. */
  ready(): Promise<unknown> | undefined;
  /** Ends the processes that it runs in; handlers that still run are cut off. */
  close(): Promise<void>;
}

type Child = Awaited<ReturnType<ChildPool["retain"]>>;

/** So much of a path is told. */
const LONGEST_PATH = 300;

/** @throws {@link InvalidOptionError} when it is neither a function nor a file that is there. */
export function openHandler<Data, Result>(
  given: Handler<Data, Result> | string | URL,
  options: { readonly processes: number; readonly logger: Logger },
): OpenHandler<Data, Result> {
  if (typeof given !== "function") return openSandbox(readFile(given), options);
  return { handle: given, ready: () => undefined, close: async () => {} };
}

/** The handler is the default export of a file; its processes are kept from job to job. */
function openSandbox<Data, Result>(
  file: string,
  { processes, logger }: { readonly processes: number; readonly logger: Logger },
): OpenHandler<Data, Result> {
  const { mainFile, ourFile } = childFiles(file);
  const env = { ...process.env, [HANDLER_FILE]: file };
  const { ChildPool: Pool } = loadBullmq();
  const pool = new Pool({ mainFile, workerForkOptions: { env } });
  /** Processes that start. */
  const starts = new Set<Promise<void>>();
  let isClosed = false;

  async function take(): Promise<Child> {
    const child = await pool.retain(ourFile);
    if (!isClosed) return child;
    await pool.kill(child);
    throw new Error("The worker is closed");
  }

  function startOne(): void {
    const start = take()
      .then((child) => pool.release(child))
      .catch((error: unknown) => {
        const reason = reasonOf(error instanceof Error ? error.message : error);
        if (isClosed) return;
        logger.error({ file, reason }, `A process of ${file} did not start: ${reason}`);
      })
      .finally(() => starts.delete(start));
    starts.add(start);
  }

  for (let count = 0; count < processes; count += 1) startOne();

  return {
    async handle(job, context) {
      const child = await take();
      let answer: ChildAnswer;
      try {
        answer = await runInChild(child, { job, context });
      } catch (error) {
        void pool.kill(child);
        if (!isClosed) startOne();
        throw error;
      }
      pool.release(child);
      return read(answer) as Result;
    },
    ready: () => (starts.size === 0 ? undefined : Promise.all(starts)),
    async close() {
      isClosed = true;
      await Promise.all(Object.values(pool.retained).map((child) => pool.kill(child)));
      await pool.clean();
      await Promise.all(starts);
    },
  };
}

function read(answer: ChildAnswer): unknown {
  if ("failure" in answer) throw Object.assign(new Error(answer.failure.message), answer.failure);
  return "isLost" in answer ? UNSTORABLE : answer.result;
}

/** BullMQ's part of a child process, which its exports do not name, and ours, beside this file. */
function childFiles(given: string): { readonly mainFile: string; readonly ourFile: string } {
  // A bundle in CommonJS has none.
  const here: string | undefined = import.meta.url;
  const name = here?.endsWith(".ts") === true ? "./sandboxed.ts" : "./sandboxed.js";
  const ours = here === undefined ? undefined : new URL(name, here);
  if (ours !== undefined && isFile(ours)) {
    const bullmq = dirname(requireFrom(ours).resolve("bullmq"));
    return { mainFile: join(bullmq, "classes/main.js"), ourFile: ours.href };
  }
  const remedy =
    'its process starts from files of "sluice", which a bundle does not hold: leave "sluice" out of the bundle (as "external"), or give the function itself';
  throw new InvalidOptionError({ where: "worker()", option: "handler", value: given, remedy });
}

/** The file's URL. */
function readFile(given: unknown): string {
  const url = fileUrlOf(given);
  if (url !== undefined && isFile(url)) return url.href;
  const remedy =
    url === undefined
      ? "give the function that does one job, or the path or URL of a file that exports it"
      : `there is no file at ${shortened(fileURLToPath(url))}; a relative path begins at the working folder`;
  throw new InvalidOptionError({ where: "worker()", option: "handler", value: given, remedy });
}

/** Where a file would be; undefined for what names none. */
function fileUrlOf(given: unknown): URL | undefined {
  const isPath = typeof given === "string" && given !== "" && !given.startsWith("file:");
  if (isPath) return pathToFileURL(resolve(given));
  try {
    const url = new URL(given as string | URL);
    // It throws for a URL that is none of a file here.
    fileURLToPath(url);
    return url;
  } catch {
    return undefined;
  }
}

function isFile(url: URL): boolean {
  try {
    return statSync(url).isFile();
  } catch {
    return false;
  }
}

/** The end of a path says the most. */
function shortened(path: string): string {
  return path.length > LONGEST_PATH ? `…${path.slice(-LONGEST_PATH)}` : path;
}
