import process from "node:process";
import type { Command } from "commander";
import Table from "cli-table3";
import { InvalidOptionError } from "../core/errors.ts";
import { sayInJson } from "../operations/text.ts";
import { createSluice, type Sluice } from "../sluice/create-sluice.ts";
import type { Queue } from "../queue/queue.ts";
import type { SluiceOptions } from "../sluice/options.ts";

/** The outputs and the environment of a command. */
export interface Io {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
  readonly isTty: boolean;
  /** True if errors and progress go to a terminal. */
  readonly errIsTty?: boolean | undefined;
  /** Asks the user a question, and resolves with the reply. Undefined if there is no user to ask. */
  readonly ask?: ((question: string) => Promise<string>) | undefined;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The width of help texts in columns. Defaults to the width of the terminal. */
  readonly width?: number | undefined;
}

/** Thrown when a name on the command line does not exist. */
export class NotFoundError extends Error {
  override readonly name = "NotFoundError";
}

/** Thrown when a rules file has problems. These were already printed. */
export class BrokenFileError extends Error {
  override readonly name = "BrokenFileError";
}

/** Thrown when newer rules than those in the file are active. */
export class NewerRulesError extends Error {
  override readonly name = "NewerRulesError";
}

/** Thrown by a command that has printed its result, and that ends with this exit code. */
export class EndWithCode extends Error {
  override readonly name = "EndWithCode";
  readonly code: number;

  constructor(code: number) {
    super(`The command ends with exit code ${code}`);
    this.code = code;
  }
}

interface GlobalOptions {
  readonly redis?: string;
  readonly prefix: string;
  readonly json?: boolean;
}

export function globalsOf(command: Command, { env }: Pick<Io, "env">): GlobalOptions {
  const given = command.optsWithGlobals<GlobalOptions>();
  const redis = given.redis ?? env["REDIS_URL"];
  return redis === undefined || redis === "" ? given : { ...given, redis };
}

/** The longest time that a command waits for Redis. */
const TIMEOUT_MS = 5_000;

function noRedis(): InvalidOptionError {
  const remedy = "give --redis redis://host:6379, or set $REDIS_URL";
  return new InvalidOptionError({ where: "sluice", option: "--redis", value: undefined, remedy });
}

/** Replaces the advice to raise an option in code, because the command line has a fixed timeout. */
export function inOwnWords(text: string): string {
  return text.replace("or raise storeTimeoutMs", "or name another with --redis");
}

/** Runs `use` with a new sluice, and closes the sluice afterwards. */
export async function withSluice<T>(
  command: Command,
  io: Io,
  use: (sluice: Sluice) => Promise<T>,
  more: Pick<SluiceOptions, "rules" | "prefix"> = {},
): Promise<T> {
  const { redis, prefix } = globalsOf(command, io);
  if (redis === undefined) {
    throw noRedis();
  }
  const log = (_facts: object, message: string): void =>
    io.err(`${onOneLine(inOwnWords(message))}\n`);
  const sluice = createSluice({
    redis,
    prefix,
    storeTimeoutMs: TIMEOUT_MS,
    ...more,
    logger: { warn: log, error: log },
  });
  try {
    return await use(sluice);
  } finally {
    await sluice.close();
  }
}

/** @throws {@link NotFoundError} when no process has reported the queue. */
export async function findQueue(sluice: Sluice, name: string): Promise<Queue<unknown>> {
  const found = await sluice.findQueue(name);
  if (found !== undefined) return found;
  throw await missingName(sluice, "queue", name, "");
}

/**
 * Creates the error for a missing name. If a queue has the name, the error suggests the command
 * `forQueue`.
 */
export async function missingName(
  sluice: Sluice,
  what: "bucket" | "queue",
  name: string,
  forQueue: string,
): Promise<NotFoundError> {
  const { buckets, queues } = await sluice.overview({ limit: 20, brief: true });
  const known = (what === "bucket" ? buckets : queues).map((other) => other.name).join(", ");
  const hint = known === "" ? "no process has reported one" : `there are ${known}`;
  const more =
    what === "bucket"
      ? (await sluice.findQueue(name)) && `"${name}" is a queue: try ${forQueue}`
      : (await sluice.find(name)) && `"${name}" is a bucket: try sluice bucket ${name}`;
  return new NotFoundError(
    `There is no ${what} "${name}": ${hint}${more === undefined ? "" : `; ${more}`}.`,
  );
}

let isService = false;

/** Keeps the command running after its output is closed. Servers and workers need this. */
export function serveUnread(): void {
  isService = true;
}

let endsAtOnce = false;

/**
 * Makes the process end as soon as the command has ended. A module of the user may have left something open, such as a
 * connection to a database.
 */
export function endAtOnce(): void {
  endsAtOnce = true;
}

/** Ends the process with this code, once its output is written. */
export function endWith(code: number): void {
  process.exitCode = code;
  if (endsAtOnce) process.stdout.write("", () => process.exit());
}

/** Handles a closed output. Ends the command if it only prints. */
export function onUnreadable(error: NodeJS.ErrnoException): void {
  if (isService) return;
  if (error.code !== "EPIPE") throw error;
  // Exit without an error, because programs such as `head` close their input early.
  process.exit();
}

/** Resolves with the first signal that asks the process to end. */
export function untilInterrupted(): Promise<"SIGINT" | "SIGTERM"> {
  return new Promise((resolve) => {
    process.once("SIGINT", () => resolve("SIGINT"));
    process.once("SIGTERM", () => resolve("SIGTERM"));
  });
}

/** Prints a result as JSON if `--json` is set, and otherwise as text. */
export function print<Result>(
  command: Command,
  io: Io,
  result: Result,
  describe: (result: Result) => string,
): void {
  const isJson = globalsOf(command, io).json === true;
  const text = isJson ? escaped(JSON.stringify(result, sayInJson)) : describe(result);
  io.out(`${text}\n`);
}

/** Formats a table without border lines, so that `cut` and `awk` can read its columns. */
export function table(heads: readonly string[], rows: readonly (readonly string[])[]): string {
  const none = { mid: "", "left-mid": "", "mid-mid": "", "right-mid": "" };
  const edges = { top: "", "top-mid": "", "top-left": "", "top-right": "" };
  const ends = { bottom: "", "bottom-mid": "", "bottom-left": "", "bottom-right": "" };
  const chars = { ...none, ...edges, ...ends, left: "", right: "", middle: "  " };
  const made = new Table({
    chars,
    style: { "padding-left": 0, "padding-right": 0, head: [], border: [] },
  });
  made.push(heads.map((head) => head.toUpperCase()));
  for (const row of rows) made.push(row.map(onOneLine));
  return made
    .toString()
    .split("\n")
    .map((line) => line.trimEnd())
    .join("\n");
}

/** Characters that can control a terminal or reverse the text that it shows. */
const UNSEEN = /[\p{Cc}\p{Cf}\u2028\u2029]/gu;

/** Replaces characters that can control a terminal. Names and reasons come from other people. */
export function onOneLine(text: string): string {
  return text.replaceAll(UNSEEN, "?");
}

/** Escapes characters that can control a terminal in JSON: `\\u009b`. */
function escaped(json: string): string {
  return json.replaceAll(UNSEEN, (found) => found.split("").map(escapeUnit).join(""));
}

function escapeUnit(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

const LENGTHS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  min: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/**
 * Parses a duration such as `"90s"`, `"15m"` or `"2h"`, and returns ms.
 *
 * @throws {@link InvalidOptionError} when the text is not a time.
 */
export function parseDuration(option: string, text: string): number {
  const [, number = "", unit = ""] = /^(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)$/.exec(text.trim()) ?? [];
  const ms = Number(number) * (LENGTHS[unit] ?? Number.NaN);
  if (Number.isFinite(ms) && ms >= 1) return Math.round(ms);
  const remedy = "give a time such as 90s, 15m or 2h";
  throw new InvalidOptionError({ where: "sluice", option, value: text, remedy });
}

/** Returns the name of the user who runs the command. */
export function whoRuns({ env }: Io): string {
  const user = env["SLUICE_BY"] ?? env["USER"] ?? env["LOGNAME"];
  return user === undefined || user === "" ? `pid ${process.pid}` : user;
}
