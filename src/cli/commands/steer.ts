/** `set`, `pause`, `resume` and `undo`: commands that change a bucket or a queue for all processes. */
import type { Command } from "commander";
import { InvalidOptionError } from "../../core/errors.ts";
import { KEY_OPTION, keyOf, settingsOf } from "../given.ts";
import type { QueuePause } from "../../queue/manage/pauses.ts";
import type { Queue } from "../../queue/queue.ts";
import type { Bucket } from "../../throttle/bucket.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import { showPreview } from "../preview.ts";
import type { BucketStatus } from "../../throttle/bucket/facts/status.ts";
import {
  duration,
  findBucket,
  findQueue,
  keyText,
  NothingToUndoError,
  onOneLine,
  parseDuration,
  print,
  whoRuns,
  withSluice,
  type Io,
} from "../io.ts";

interface ByHandOptions {
  readonly reason?: string;
  readonly by?: string;
  readonly generation?: string;
  readonly for?: string;
  readonly key?: string[];
  readonly queue?: boolean;
}

const OF_QUEUE = ["--queue", "the name is that of a queue, and no bucket's"] as const;

export function addSteering(program: Command, io: Io): void {
  byHand(program.command("set <name>"))
    .description("puts another rate or concurrency of a bucket in force, or settings of a queue")
    .option(...OF_QUEUE)
    .option("--rate <rate>", "such as 50/s; it replaces all limits that the keys share")
    .option("--concurrency <calls>", "how many calls at once")
    .option(
      "--setting <settings...>",
      "of a queue: maxBacklog=500, defaults.attempts=3, weights=code",
    )
    .option("--code", "puts the policy of the code in force again")
    .option(
      "--for <time>",
      "for how long, such as 15m; then the code's policy holds again, of a queue the rules and the code",
    )
    .option("--dry-run", "says what would change, and changes nothing")
    .addHelpText(
      "after",
      '\nExample: sluice set stripe --rate 20/s --for 1h --reason "429s"' +
        "\nExample: sluice set charges --queue --setting maxBacklog=500 --for 1h",
    )
    .action(async (name: string, options: SetOptions, command: Command) => {
      if (options.queue === true) {
        await setQueue(command, io, name, options);
        return;
      }
      await change(command, io, name, (target) => set(target, options, command, io));
    });
  byHand(program.command("pause <name>"))
    .description("starts no calls of a bucket, or no jobs of a queue; of all or of one key")
    .option(...OF_QUEUE)
    .option("--for <time>", "for how long, such as 15m; without it, until it is resumed")
    .option(...KEY_OPTION)
    .addHelpText("after", "\nExample: sluice pause hooks --key acme endpoint-7 --for 15m")
    .action(async (name: string, options: ByHandOptions, command: Command) => {
      const forMs = options.for === undefined ? undefined : parseDuration("--for", options.for);
      const pause = { ...given(options, io), ...keyOf(options), ...(forMs && { forMs }) };
      if (options.queue === true) {
        await changeQueue(command, io, name, (queue) => queue.pause(pause));
        return;
      }
      await change(command, io, name, ({ bucket }) => bucket.pause(pause));
    });
  byHand(program.command("resume <name>"))
    .description("ends a pause of a bucket or a queue, of all or of one key")
    .option(...OF_QUEUE)
    .option(...KEY_OPTION)
    .addHelpText("after", "\nExample: sluice resume hooks")
    .action(async (name: string, options: ByHandOptions, command: Command) => {
      const resume = { ...given(options, io), ...keyOf(options) };
      if (options.queue === true) {
        await changeQueue(command, io, name, (queue) => queue.resume(resume));
        return;
      }
      await change(command, io, name, ({ bucket }) => bucket.resume(resume));
    });
  byHand(program.command("undo <name>"))
    .description("takes back the last change of a bucket or a queue that is in force")
    .option(...OF_QUEUE)
    .option("--id <id>", "refuses to take back any other change than this one")
    .addHelpText("after", "\nExample: sluice undo stripe")
    .action(async (name: string, options: ByHandOptions & { id?: string }, command: Command) => {
      const undo = { ...given(options, io), ...(options.id && { id: options.id }) };
      const tell = (undone: object | undefined): void => {
        if (undone === undefined) throw new NothingToUndoError();
      };
      if (options.queue === true) {
        await changeQueue(command, io, name, async (queue) => tell(await queue.undo(undo)));
        return;
      }
      await change(command, io, name, async ({ bucket }) => tell(await bucket.undo(undo)));
    });
}

function byHand(command: Command): Command {
  return command
    .option("--reason <text>", "why; the log of changes says it")
    .option("--by <name>", "who; defaults to $SLUICE_BY, else to the user")
    .option("--generation <number>", "refuses the change if another came since this generation");
}

interface SetOptions extends ByHandOptions {
  readonly rate?: string;
  readonly concurrency?: string;
  readonly setting?: string[];
  readonly code?: boolean;
  readonly dryRun?: boolean;
}

/** The bucket that is changed, and the sluice that it is of. */
interface Target {
  readonly sluice: Sluice;
  readonly bucket: Bucket;
}

/** Makes a change, and prints the bucket as it is then. */
async function change(
  command: Command,
  io: Io,
  name: string,
  make: (target: Target) => Promise<void | "only looked">,
): Promise<void> {
  await withSluice(command, io, async (sluice) => {
    const what = command.name();
    const more = what === "set" ? " --setting maxBacklog=500" : "";
    const bucket = await findBucket(sluice, name, `sluice ${what} NAME --queue${more}`);
    if ((await make({ sluice, bucket })) === "only looked") return;
    print(command, io, await bucket.status(), describe);
  });
}

/** Makes a change of a queue, and prints which pauses it has then. */
async function changeQueue(
  command: Command,
  io: Io,
  name: string,
  make: (queue: Queue<unknown>) => Promise<void>,
): Promise<void> {
  await withSluice(command, io, async (sluice) => {
    const queue = await findQueue(sluice, name);
    await make(queue);
    const pauses = await queue.paused();
    print(command, io, { queue: name, pauses }, () => onOneLine(pausesText(name, pauses)));
  });
}

/** Sets a queue, and prints what holds of it then. */
async function setQueue(
  command: Command,
  io: Io,
  name: string,
  options: SetOptions,
): Promise<void> {
  const { rate, concurrency, code, dryRun, setting = [] } = options;
  const ofBucket = { "--rate": rate, "--concurrency": concurrency, "--code": code };
  for (const [option, value] of Object.entries({ ...ofBucket, "--dry-run": dryRun })) {
    if (value === undefined) continue;
    const remedy = "leave it out: it is of a bucket; a queue takes --setting";
    throw new InvalidOptionError({ where: "sluice set", option, value, remedy });
  }
  const forMs = options.for === undefined ? undefined : parseDuration("--for", options.for);
  const set = { ...settingsOf(setting), ...given(options, io), ...(forMs && { forMs }) };
  await withSluice(command, io, async (sluice) => {
    const queue = await findQueue(sluice, name);
    await queue.set(set);
    const { settings, generation } = await queue.status();
    const each = settings.map(({ name: of, value, setBy }) => `${of} ${value} (${setBy})`);
    print(command, io, { queue: name, settings, generation }, () =>
      onOneLine(`${name}: ${each.join(", ")}, generation ${generation}`),
    );
  });
}

function pausesText(name: string, pauses: readonly QueuePause[]): string {
  const each = pauses.map(
    ({ key, forMs }) =>
      `${key === undefined ? "" : `${keyText(key)} `}paused for ${duration(forMs)}`,
  );
  return `${name}: ${each.length === 0 ? "not paused" : each.join(", ")}`;
}

async function set(
  { sluice, bucket }: Target,
  options: SetOptions,
  command: Command,
  io: Io,
): Promise<void | "only looked"> {
  const { rate, concurrency, code, dryRun } = options;
  const isPolicy = rate !== undefined || concurrency !== undefined;
  if (isPolicy === (code === true)) {
    const remedy = isPolicy
      ? "leave it out, or leave out --rate and --concurrency"
      : "give it, or --rate or --concurrency";
    throw new InvalidOptionError({ where: "sluice set", option: "--code", value: code, remedy });
  }
  const forMs = options.for === undefined ? undefined : parseDuration("--for", options.for);
  const by = { ...given(options, io), ...(forMs === undefined ? {} : { forMs }) };
  const policy = {
    ...(rate === undefined ? {} : { rate }),
    ...(concurrency === undefined ? {} : { concurrency: Number(concurrency) }),
  };
  if (dryRun === true) {
    await showPreview(command, io, { sluice, bucket, policy: code === true ? "code" : policy });
    return "only looked";
  }
  await bucket.configure(code === true ? "code" : policy, by);
}

function given({ reason, by, generation }: ByHandOptions, io: Io) {
  return {
    by: by ?? whoRuns(io),
    ...(reason === undefined ? {} : { reason }),
    ...(generation === undefined ? {} : { generation: Number(generation) }),
  };
}

function describe({ name, policy, source, pausedForMs, generation }: BucketStatus): string {
  const pause = pausedForMs === 0 ? "" : `, paused for ${duration(pausedForMs)}`;
  return onOneLine(`${name}: ${policy} (${source})${pause}, generation ${generation}`);
}
