/** Creates a command for each operation, with the command's options and help. */
import { readFileSync } from "node:fs";
import type { Command, Option } from "commander";
import { messageOf } from "../core/describe.ts";
import { InvalidOptionError } from "../core/errors.ts";
import { createFacts } from "../operations/facts.ts";
import { OPERATIONS } from "../operations/index.ts";
import {
  contextOf,
  perform,
  RefusedError,
  type AnyOperation,
  type Door,
} from "../operations/operation.ts";
import type { Shown } from "../operations/text.ts";
import type { Sluice } from "../sluice/create-sluice.ts";
import type { FoundWebhooks } from "../webhooks/index.ts";
import { missingName, onOneLine, print, table, whoRuns, withSluice, type Io } from "./io.ts";
import { argsOf, fieldsOf, inLowerCase, optionsOf, readOption } from "./options.ts";

type Values = Readonly<Record<string, unknown>>;

/** The option for the name of a queue. Without it, the name is that of a bucket. */
const OF_QUEUE = ["--queue", "the name is that of a queue, not of a bucket"] as const;

/** Adds the commands of a group. Without a group, adds the commands that have no group. */
export function addOperations(parent: Command, io: Io, group?: "endpoints"): void {
  const commands = new Map<string, AnyOperation[]>();
  for (const each of OPERATIONS) {
    const [first = "", ...rest] = each.cli.command.split(" ");
    if ((first === "endpoints") !== (group !== undefined)) continue;
    const words = group === undefined ? each.cli.command : rest.join(" ");
    commands.set(words, [...(commands.get(words) ?? []), each]);
  }
  for (const [words, operations] of commands) addCommand(parent.command(words), io, operations);
}

/** Adds a command for one operation, or for two operations: one on a bucket and one on a queue. */
function addCommand(command: Command, io: Io, operations: readonly AnyOperation[]): void {
  const [usual] = operations as [AnyOperation];
  command.description(usual.cli.about ?? inLowerCase(usual.summary));
  if (operations.some(({ cli }) => cli.when === "--queue")) command.option(...OF_QUEUE);
  const options = new Map<string, Option>();
  for (const option of operations.flatMap(optionsOf)) {
    // If two operations share an option, the help of the first one applies.
    if (!options.has(option.long!)) options.set(option.long!, option);
  }
  for (const option of options.values()) command.addOption(option);
  const examples = operations.flatMap(({ cli }) => cli.examples);
  command
    .addHelpText("after", examples.map((example) => `\nExample: ${example}`).join(""))
    .action(async (...given: unknown[]) => {
      const args = given.slice(0, -2);
      const values = command.opts<Values>();
      const called = operations.find(({ cli }) => isMeant(cli.when, args, values)) ?? usual;
      refuseOptionsOfOthers(command, called, options, values);
      await runCommand(command, io, { called, args, values });
    });
}

function isMeant(when: string | undefined, args: readonly unknown[], values: Values): boolean {
  if (when === "--queue") return values["queue"] === true;
  return when === "[job]" && args[1] !== undefined;
}

/**
 * @throws {@link InvalidOptionError} when an option does not apply to the target, a bucket or a
 * queue.
 */
function refuseOptionsOfOthers(
  command: Command,
  called: AnyOperation,
  all: ReadonlyMap<string, Option>,
  values: Values,
): void {
  const own = new Set(optionsOf(called).map(({ long }) => long));
  for (const [long, option] of all) {
    const name = option.attributeName();
    const isGiven = command.getOptionValueSource(name) === "cli";
    if (own.has(long) || !isGiven) continue;
    const others = called.cli.options?.map(([flags]) => flags.split(" ")[0]).join(", ") ?? "";
    const take = others === "" ? "" : `; a ${called.target} takes ${others}`;
    const remedy = `remove it: a ${called.target} does not have it${take}`;
    const where = `sluice ${command.name()}`;
    throw new InvalidOptionError({ where, option: long, value: values[name], remedy });
  }
}

interface Given {
  readonly called: AnyOperation;
  readonly args: readonly unknown[];
  readonly values: Values;
}

async function runCommand(command: Command, io: Io, given: Given): Promise<void> {
  const { called, args, values } = given;
  const { cli } = called;
  const named = argsOf(cli).map((name, at) => [name, args[at]] as const);
  const read: Record<string, unknown> = {
    ...Object.fromEntries(named.filter(([, value]) => value !== undefined)),
    ...cli.defaults,
  };
  for (const [name, field] of fieldsOf(called)) {
    const value = readOption(name, field, values);
    if (value !== undefined) read[name] = value;
  }
  const texts = args.map((arg, at) => (at === cli.fileAt ? textIn(command, String(arg)) : arg));
  Object.assign(read, cli.read?.(values, texts));
  if (cli.confirm !== undefined && values["yes"] !== true) {
    const where = `sluice ${command.name()}`;
    const remedy = `give --yes: ${cli.confirm}`;
    throw new InvalidOptionError({ where, option: "--yes", value: undefined, remedy });
  }
  await withSluice(command, io, async (sluice) => {
    const door: Door = { sluice, facts: createFacts(sluice), caller: callerOf(io) };
    try {
      const context = contextOf(door, {});
      if (read["tenant"] === undefined && "tenant" in called.input.shape) {
        read["tenant"] = await onlyTenant(await context.sender(String(read["sender"])));
      }
      const performed = (): Promise<unknown> => perform(called, door, read);
      const result: unknown =
        cli.run === undefined
          ? await performed()
          : await cli.run(context, read, { options: values, perform: performed });
      const printed: unknown = cli.result === undefined ? result : cli.result(result, read);
      print(command, io, printed, (shown) => textOf(cli.show(shown, read)));
      cli.after?.(result, read);
    } catch (error) {
      throw error instanceof RefusedError ? await withHint(sluice, command, error) : error;
    }
  });
}

function textIn(command: Command, file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    const where = `sluice ${command.name()}`;
    const remedy = `give a file that can be read (${messageOf(error as Error)})`;
    throw new InvalidOptionError({ where, option: "file", value: file, remedy });
  }
}

export function textOf(shown: Shown): string {
  const lines = typeof shown === "string" ? [shown] : shown;
  return lines
    .map((line) => (typeof line === "string" ? onOneLine(line) : table(line.heads, line.rows)))
    .join("\n");
}

/**
 * Returns the rights of the command line. The command line may run all operations, because its user
 * has access to Redis.
 */
export function callerOf(io: Io): Door["caller"] {
  const all = (): boolean => true;
  return { by: (said) => said ?? whoRuns(io), mayUse: all, mayBucket: all, mayQueue: all };
}

const ONLY_TENANT = "only";

/**
 * @throws {@link InvalidOptionError} when the sender has several tenants and the command names
 * none.
 */
export async function onlyTenant({ tenants: all }: FoundWebhooks): Promise<string> {
  const { tenants } = await all.list({ limit: 20 });
  if (tenants.length === 0 || tenants.includes(ONLY_TENANT)) return ONLY_TENANT;
  const remedy = `name one, such as ${tenants.join(", ")}`;
  const where = "sluice endpoints";
  throw new InvalidOptionError({ where, option: "--tenant", value: undefined, remedy });
}

/**
 * Adds a hint to an error for a missing name. The hint lists the existing names. If the name is
 * that of the other kind, a bucket or a queue, the hint suggests the command for that kind.
 */
async function withHint(sluice: Sluice, command: Command, error: RefusedError): Promise<Error> {
  const { code, missing } = error;
  if (missing === undefined) return error;
  const word = command.name();
  const more = command.options.some(({ long }) => long === "--setting")
    ? " --setting maxBacklog=500"
    : "";
  const takesQueue = command.options.some(({ long }) => long === "--queue");
  const forQueue = takesQueue
    ? `sluice ${word} ${missing} --queue${more}`
    : word === "why"
      ? `sluice queue ${missing}, or sluice why ${missing} JOB`
      : `sluice queue ${missing}`;
  if (code === "ERR_BUCKET_MISSING") return missingName(sluice, "bucket", missing, forQueue);
  return code === "ERR_QUEUE_MISSING" ? missingName(sluice, "queue", missing, "") : error;
}
