import process from "node:process";
import { createInterface } from "node:readline/promises";
import { Command, CommanderError } from "commander";
import {
  CannotUndoError,
  ChangedError,
  InvalidOptionError,
  RedisRequiredError,
  StoreUnavailableError,
} from "../core/errors.ts";
import { NothingToUndoError } from "../operations/changes.ts";
import { RefusedError } from "../operations/operation.ts";
import { EndpointMissingError, MessageMissingError } from "../webhooks/errors.ts";
import { addCompletion } from "./commands/completion.ts";
import { addCodemod } from "./commands/setup/codemod/codemod.ts";
import { addConform } from "./commands/setup/conform.ts";
import { addDemo } from "./commands/setup/demo.ts";
import { addInit } from "./commands/setup/init.ts";
import { addDoctor } from "./commands/setup/doctor.ts";
import { addSimulate } from "./commands/setup/simulate.ts";
import { addEndpoints } from "./commands/endpoints.ts";
import { addEnqueue } from "./commands/enqueue.ts";
import { addSchedule } from "./commands/schedule.ts";
import { addTop } from "./commands/top.ts";
import { addOperations } from "./operations.ts";
import { addDev } from "./commands/setup/dev.ts";
import { addMcp } from "./commands/mcp.ts";
import { addServe } from "./commands/serve.ts";
import { addRules } from "./commands/rules.ts";
import { readVersion } from "../insight/version.ts";
import { addWorker } from "./commands/work.ts";
import {
  BrokenFileError,
  EndWithCode,
  inOwnWords,
  NewerRulesError,
  NotFoundError,
  onOneLine,
  type Io,
} from "./io.ts";

/** The exit codes. `docs/reference/cli.md` lists them. */
const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  notFound: 3,
  unreachable: 4,
  changed: 5,
} as const;

const EXIT_CODES = `
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no such bucket, queue, job or endpoint, 4 Redis does not answer, 5 a conflict. A conflict means that another change came first, newer rules are in force, or the change cannot be undone. \`worker --until-empty\` adds 6, 7, 130 and 143.`;

/** Runs one command. Resolves with its exit code. */
export async function run(args: readonly string[], io: Io = OF_PROCESS): Promise<number> {
  const program = createProgram(io);
  try {
    await program.parseAsync(args, { from: "user" });
    return EXIT.ok;
  } catch (error) {
    // Commander has already printed the error, the help or the version.
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    if (error instanceof EndWithCode) return error.code;
    if (error instanceof NothingToUndoError) {
      io.err(`${error.message}\n`);
      return EXIT.changed;
    }
    const text = onOneLine(inOwnWords(error instanceof Error ? error.message : String(error)));
    // Add no prefix, because errors about an option already begin with the command.
    io.err(/^sluice\b.*?: option /.test(text) ? `${text}\n` : `sluice: ${text}\n`);
    return exitCodeOf(error);
  }
}

const OF_PROCESS: Io = {
  out: (text) => void process.stdout.write(text),
  err: (text) => void process.stderr.write(text),
  isTty: process.stdout.isTTY === true,
  errIsTty: process.stderr.isTTY === true,
  ask: process.stdin.isTTY === true ? askOnTerminal : undefined,
  env: process.env,
};

async function askOnTerminal(question: string): Promise<string> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return await terminal.question(question);
  } finally {
    terminal.close();
  }
}

function exitCodeOf(error: unknown): number {
  if (error instanceof InvalidOptionError || error instanceof RedisRequiredError) return EXIT.usage;
  const isMissing =
    error instanceof NotFoundError ||
    error instanceof RefusedError ||
    error instanceof EndpointMissingError ||
    error instanceof MessageMissingError;
  if (isMissing) return EXIT.notFound;
  if (error instanceof StoreUnavailableError) return EXIT.unreachable;
  if (error instanceof BrokenFileError) return EXIT.failed;
  const isOther =
    error instanceof ChangedError ||
    error instanceof CannotUndoError ||
    error instanceof NewerRulesError;
  return isOther ? EXIT.changed : EXIT.failed;
}

export function createProgram(io: Io): Command {
  const program = new Command("sluice")
    .description("Shows and changes the buckets and queues of all processes that share a Redis.")
    .version(readVersion(), "-V, --version", "prints the version of Sluice")
    .option("--redis <url>", "the address of Redis; defaults to $REDIS_URL")
    .option("--prefix <prefix>", "the prefix of all keys in Redis", "sluice")
    .option("--json", "print JSON, one document for each command")
    .showSuggestionAfterError()
    .helpCommand("help [command]", "shows the help of a command")
    .addHelpText("after", EXIT_CODES)
    .exitOverride()
    .configureOutput({
      writeOut: io.out,
      writeErr: io.err,
      ...(io.width === undefined ? {} : { getOutHelpWidth: () => io.width! }),
    });
  addOperations(program, io);
  addTop(program, io);
  addSchedule(program, io);
  addEnqueue(program, io);
  addEndpoints(program, io);
  addWorker(program, io);
  addDoctor(program, io);
  addSimulate(program, io);
  addRules(program, io);
  addServe(program, io);
  addDev(program, io);
  addMcp(program, io);
  addDemo(program, io);
  addCodemod(program, io);
  addConform(program, io);
  addInit(program, io);
  addCompletion(program, io);
  inherit(program);
  return program;
}

function inherit(parent: Command): void {
  for (const command of parent.commands)
    inherit(command.exitOverride().copyInheritedSettings(parent));
}
