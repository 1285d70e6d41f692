/** `failed`, `replay` and `purge`: the jobs that have failed for good. */
import type { Command } from "commander";
import { InvalidOptionError } from "../../core/errors.ts";
import type { WhoAndWhy } from "../../core/input/who-and-why.ts";
import type { FailedFilter, FailedJob } from "../../queue/manage/dead-letters.ts";
import { countOf, KEY_OPTION, keyOf, type KeyGiven } from "../given.ts";
import {
  findQueue,
  keyText,
  NotFoundError,
  parseDuration,
  print,
  table,
  whoRuns,
  withSluice,
  type Io,
} from "../io.ts";

interface FilterGiven extends KeyGiven {
  readonly name?: string;
  readonly reason?: string;
  readonly code?: string;
  readonly since?: string;
  readonly limit?: string;
}

export function addDeadLetters(program: Command, io: Io): void {
  filtered(program.command("failed <queue>"))
    .description("the dead letters of a queue, the newest first")
    .option("--data", "with the data of the jobs, and where they threw")
    .addHelpText("after", "\nExample: sluice failed charges --code ECONNREFUSED --since 2h")
    .action(async (name: string, options: FilterGiven & { data?: boolean }, command: Command) => {
      await withSluice(command, io, async (sluice) => {
        const failed = await (await findQueue(sluice, name)).failed(filterOf(options));
        const shown = options.data === true ? failed : failed.map(withoutData);
        print(command, io, shown, describe);
      });
    });
  filtered(program.command("replay <queue> [ids...]"))
    .description("puts dead letters back into their queue: by id, by a filter, or all")
    .option("--all", "all of them")
    .option(...WHY)
    .addHelpText("after", '\nExample: sluice replay charges --reason "timed out" --limit 100')
    .action(async (name: string, ids: string[], options: ActOptions, command: Command) => {
      const which = whichOf("sluice replay", ids, options);
      await withSluice(command, io, async (sluice) => {
        const queue = await findQueue(sluice, name);
        const { count: replayed, missing } = await each(which, (one) =>
          queue.replay(one, byHand(options, io)),
        );
        print(command, io, { replayed }, () => `${jobs(replayed)} put back into the queue.`);
        assertFound(name, missing);
      });
    });
  filtered(program.command("purge <queue> [ids...]"))
    .description("removes dead letters for good: by id, by a filter, or all")
    .option("--all", "all of them")
    .option(...WHY)
    .option("--yes", "needed: what is removed cannot be had back")
    .addHelpText("after", "\nExample: sluice purge charges --key acme --yes")
    .action(async (name: string, ids: string[], options: PurgeOptions, command: Command) => {
      const which = whichOf("sluice purge", ids, options);
      if (options.yes !== true) {
        const remedy =
          "give --yes to remove the jobs for good; sluice failed shows which those are";
        throw new InvalidOptionError({
          where: "sluice purge",
          option: "--yes",
          value: undefined,
          remedy,
        });
      }
      await withSluice(command, io, async (sluice) => {
        const queue = await findQueue(sluice, name);
        const { count: purged, missing } = await each(which, (one) =>
          queue.purge(one, byHand(options, io)),
        );
        print(command, io, { purged }, () => `${jobs(purged)} removed for good.`);
        assertFound(name, missing);
      });
    });
}

const WHY = ["--why <text>", "why; the log of changes says it, with who did it"] as const;

function byHand({ why }: ActOptions, io: Io): WhoAndWhy {
  return { by: whoRuns(io), ...(why === undefined ? {} : { reason: why }) };
}

type ActOptions = FilterGiven & { readonly all?: boolean; readonly why?: string };
type PurgeOptions = ActOptions & { readonly yes?: boolean };

function filtered(command: Command): Command {
  return command
    .option(...KEY_OPTION)
    .option("--name <name>", "the name that the job was given")
    .option("--reason <text>", "a part of its reason, or of an error that led to it")
    .option("--code <code>", "the code of its error, or of one that led to it")
    .option("--since <time>", "those that failed in this time, such as 2h")
    .option("--limit <count>", "how many at most, the newest first");
}

function filterOf(options: FilterGiven): FailedFilter {
  const { name, reason, code, since, limit } = options;
  return {
    ...keyOf(options),
    ...(name === undefined ? {} : { name }),
    ...(reason === undefined ? {} : { reason }),
    ...(code === undefined ? {} : { code }),
    ...(since === undefined ? {} : { since: Date.now() - parseDuration("--since", since) }),
    ...(limit === undefined ? {} : { limit: countOf("--limit", limit) }),
  };
}

/** Ids, or one filter: to act on all jobs, one has to say so. */
function whichOf(
  where: string,
  ids: string[],
  options: ActOptions,
): readonly (string | FailedFilter)[] {
  const filter = filterOf(options);
  const isFiltered = Object.keys(filter).length > 0;
  const ways = [ids.length > 0, isFiltered, options.all === true].filter(Boolean).length;
  if (ways === 1) return ids.length > 0 ? ids : [filter];
  const remedy = "give ids, or a filter such as --reason, or --all: one of the three";
  throw new InvalidOptionError({ where, option: "--all", value: options.all, remedy });
}

async function each(
  which: readonly (string | FailedFilter)[],
  act: (one: string | FailedFilter) => Promise<number>,
): Promise<{ readonly count: number; readonly missing: readonly string[] }> {
  let count = 0;
  const missing: string[] = [];
  for (const one of which) {
    const done = await act(one);
    count += done;
    if (done === 0 && typeof one === "string") missing.push(one);
  }
  return { count, missing };
}

/** @throws {@link NotFoundError} when some ids are of no dead letter. */
function assertFound(queue: string, missing: readonly string[]): void {
  if (missing.length === 0) return;
  const ids = missing.map((id) => `"${id}"`).join(", ");
  throw new NotFoundError(
    `There is no dead letter ${ids} in queue "${queue}": sluice failed ${queue} lists them.`,
  );
}

function jobs(count: number): string {
  return count === 1 ? "1 job was" : `${count} jobs were`;
}

type Shown = Omit<FailedJob<unknown>, "data" | "stack"> & { readonly data?: unknown };

function withoutData({ data: _data, stack: _stack, ...facts }: FailedJob<unknown>): Shown {
  return facts;
}

function describe(failed: readonly Shown[]): string {
  if (failed.length === 0) return "No dead letter matches.";
  const hasData = failed.some((job) => "data" in job);
  const rows = failed.map((job) => [
    job.id,
    new Date(job.failedAtMs).toISOString(),
    keyText(job.key),
    String(job.attempts),
    job.reason,
    ...(hasData ? [JSON.stringify(job.data)] : []),
  ]);
  return table(["id", "failed", "key", "attempts", "reason", ...(hasData ? ["data"] : [])], rows);
}
