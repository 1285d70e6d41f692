import { writeFile } from "node:fs/promises";
import { Option, type Command } from "commander";
import { reasonOf } from "../../../core/describe.ts";
import { InvalidOptionError } from "../../../core/errors.ts";
import { conform, SCENARIOS, type Report } from "../../conform/conform.ts";
import { formatHtml } from "../../conform/html.ts";
import { PEERS, type LimiterName } from "../../conform/limiters/limiters.ts";
import { findRedisServer } from "../../conform/private-redis.ts";
import { serveReplica } from "../../conform/replica.ts";
import { formatMarkdown, formatReport } from "../../conform/report.ts";
import { EndWithCode, globalsOf, print, untilInterrupted, type Io } from "../../io.ts";

interface ConformFlags {
  readonly against?: string;
  readonly only?: string;
  readonly quick?: boolean;
  readonly html?: string;
  readonly markdown?: boolean;
  /** Set only in processes that the command starts. */
  readonly replica?: boolean;
}

const WHERE = "sluice conform";
const SIGNAL_CODES = { SIGINT: 130, SIGTERM: 143 } as const;

export function addConform(program: Command, io: Io): void {
  program
    .command("conform")
    .description("measures the promises of Sluice on your Redis, beside other limiters")
    .option("--against <packages>", `other limiters of your project: ${PEERS.join(",")}`)
    .option("--only <scenarios>", "some of the scenarios")
    .option("--quick", "shorter runs, with less exact figures")
    .option("--html <file>", "writes a page with the figures and pictures")
    .option("--markdown", "prints the table as Markdown")
    .addOption(new Option("--replica").hideHelp())
    .addHelpText(
      "after",
      `
Scenarios: ${SCENARIOS.map(({ name }) => name).join(", ")}.

Each scenario starts processes that call a server on this machine. All keys in Redis begin with the
prefix and "-conform", and are removed at the end. Without --redis and $REDIS_URL, the command
starts a redis-server of its own, and also runs the scenario that kills Redis. A run takes about two
and a half minutes for each limiter. Exit code: 0 if Sluice kept all promises, 1 if it missed one.

Example: sluice conform --quick
Example: sluice conform --against bottleneck,bullmq --html report.html`,
    )
    .action(async (flags: ConformFlags, command: Command) => {
      if (flags.replica === true) return serveReplica();
      const report = await run(flags, command, io);
      await writePage(flags.html, formatHtml(report));
      print(command, io, report, flags.markdown === true ? formatMarkdown : formatReport);
      const isMissed = report.outcomes.some(
        ({ limiter, result }) => limiter === "sluice" && result === "missed",
      );
      if (isMissed) throw new EndWithCode(1);
    });
}

async function run(flags: ConformFlags, command: Command, io: Io): Promise<Report> {
  const against = pick("--against", PEERS, flags.against) ?? [];
  const names = SCENARIOS.map(({ name }) => name);
  const only = pick("--only", names, flags.only) ?? names;
  const { redis, prefix } = globalsOf(command, io);
  checkRedis(redis);
  // Before the run, which takes minutes. Appending keeps the page of an earlier run.
  await writePage(flags.html, "", "a");
  const binary = redis === undefined ? findRedisServer() : undefined;
  if (redis === undefined && binary === undefined) {
    const remedy = "give the URL of one, or install redis-server, so that the command can start it";
    throw new InvalidOptionError({ where: WHERE, option: "--redis", value: undefined, remedy });
  }
  const stopping = new AbortController();
  void untilInterrupted().then((signal) => stopping.abort(signal));
  try {
    return await conform({
      redisUrl: redis,
      binary,
      prefix,
      limiters: ["sluice", ...(against as LimiterName[])],
      scenarios: SCENARIOS.filter(({ name }) => only.includes(name)),
      isQuick: flags.quick === true,
      signal: stopping.signal,
      onProgress: (text) => io.errIsTty === true && io.err(`${text}\n`),
    });
  } catch (error) {
    if (!stopping.signal.aborted) throw error;
    throw new EndWithCode(SIGNAL_CODES[stopping.signal.reason as keyof typeof SIGNAL_CODES]);
  }
}

/** @throws {@link InvalidOptionError} when the address is no URL of a Redis that several processes can reach. */
function checkRedis(redis: string | undefined): void {
  if (redis === undefined || (/^rediss?:\/\//.test(redis) && URL.canParse(redis))) return;
  const remedy =
    redis === "memory"
      ? "leave it out: the command then starts a redis-server of its own"
      : "give a URL such as redis://host:6379";
  throw new InvalidOptionError({ where: WHERE, option: "--redis", value: redis, remedy });
}

/** @throws {@link InvalidOptionError} when a name is unknown. */
function pick<Name extends string>(
  option: string,
  known: readonly Name[],
  given: string | undefined,
): readonly Name[] | undefined {
  if (given === undefined) return undefined;
  const wanted = given.split(",").map((name) => name.trim());
  const unknown = wanted.find((name) => !known.some((each) => each === name));
  if (unknown === undefined) return known.filter((name) => wanted.includes(name));
  const remedy = `give names of ${known.join(", ")}`;
  throw new InvalidOptionError({ where: WHERE, option, value: unknown, remedy });
}

/** @throws {@link InvalidOptionError} when the file cannot be written. */
async function writePage(
  file: string | undefined,
  page: string,
  flag: "a" | "w" = "w",
): Promise<void> {
  if (file === undefined) return;
  try {
    await writeFile(file, page, { flag });
  } catch (cause) {
    const remedy = `give a file that can be written (${reasonOf(cause)})`;
    throw new InvalidOptionError({ where: WHERE, option: "--html", value: file, remedy });
  }
}
