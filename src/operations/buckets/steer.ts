/** Operations that change buckets, and that show what a change would do. */
import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import type { PolicyOptions } from "../../core/policy/policy.ts";
import type { Bucket } from "../../throttle/bucket.ts";
import type { BucketState } from "../../throttle/bucket/bucket-state.ts";
import type { BucketStatus } from "../../throttle/bucket/facts/status.ts";
import { assertUndone } from "../changes.ts";
import { MOST_FORECASTS } from "../facts.ts";
import {
  BY_HAND,
  FOR_MS,
  GENERATION,
  PAUSE_FORM,
  PAUSING,
  POLICY,
  PREVIEW,
  RESUME_FORM,
  RESUMING,
} from "../fields.ts";
import { operation, type CommandLine, type Context } from "../operation.ts";
import { object } from "../shapes.ts";
import { showPreview, type CodePreview, type Preview, duration } from "../text.ts";
import { BUCKET, LOOK, OF_TARGET, STEER } from "./shared.ts";

const FAIR_OPTION = [
  "--fair <turns...>",
  "how keys take turns: weights.gold=2, floors.small=20/s, critical=0.5; on for equal turns, off for none",
] as const;

export const preview = operation({
  ...LOOK,
  name: "bucket.preview",
  target: "bucket",
  summary: "What another policy or a pause would do to pending calls",
  input: z.strictObject({ ...BUCKET, ...PREVIEW }),
  answers: "The bucket now, and after the change.",
  output: object({ now: { type: "object" }, after: { type: "object" } }),
  privacy: OF_TARGET,
  run: async (context, { bucket: name, ...change }) =>
    (await context.bucket(name)).preview(changeOf(change)),
  http: { path: "POST /api/v1/buckets/:bucket/preview", tag: "steering" },
  cli: {
    command: "preview <name>",
    args: ["bucket"],
    about: "what a rate or a pause would do to pending calls and jobs; changes nothing",
    examples: ["sluice preview stripe --rate 20/s"],
    ...readsPreview(),
    run: (door, { bucket: name, policy, pausedForMs }) =>
      previewOf(door, String(name), changeOf({ policy, pausedForMs } as PreviewGiven)),
    show: showPreview,
  },
});

/** The command line prints the bucket after the change. */
const AFTERWARDS: Pick<CommandLine<{ readonly status: unknown }>, "args" | "result" | "show"> = {
  args: ["bucket"],
  result: ({ status }) => status,
  show({ name, policy, source, pausedForMs, generation }: BucketStatus) {
    const paused = pausedForMs === 0 ? "" : `, paused for ${duration(pausedForMs)}`;
    return `${name}: ${policy} (${source})${paused}, generation ${generation}`;
  },
};

async function changed(context: Context, name: string, make: (found: Bucket) => Promise<unknown>) {
  const found = await context.bucket(name);
  const undone = await make(found);
  const status = await context.beside(found.status());
  return undone === undefined ? { status } : { undone, status };
}

export const configure = operation({
  ...STEER,
  name: "bucket.configure",
  summary: "Overrides the policy of the code",
  input: z.strictObject({
    ...BUCKET,
    policy: POLICY,
    forMs: FOR_MS,
    generation: GENERATION,
    ...BY_HAND,
  }),
  undoable: true,
  run: (context, { bucket: name, policy, ...options }) =>
    changed(context, name, (found) =>
      found.configure(policy as PolicyOptions | "code", { ...options, ...context.byHand }),
    ),
  http: { path: "POST /api/v1/buckets/:bucket/configure", tag: "steering" },
  cli: {
    ...AFTERWARDS,
    command: "set <name>",
    about: "overrides the rate or concurrency of a bucket, or settings of a queue",
    examples: [
      'sluice set stripe --rate 20/s --for 1h --reason "429s"',
      "sluice set stripe --fair weights.gold=2 floors.small=20/s",
      'sluice set gpt --drain west --reason "maintenance"',
      "sluice set charges --queue --setting maxBacklog=500 --for 1h",
    ],
    hidden: ["policy"],
    options: [
      [
        "--rate <rate>",
        "such as 50/s; it replaces all limits that the keys share, also of other units and the concurrency",
      ],
      ["--concurrency <calls>", "how many calls at once"],
      FAIR_OPTION,
      ["--drain <members...>", "members of a pool that get no new calls"],
      ["--undrain <members...>", "drained members of a pool that take calls again"],
      ["--code", "puts the policy of the code in force again"],
      ["--dry-run", "says what would change, and changes nothing"],
    ],
    read: ({ rate, concurrency, fair, drain, undrain, code }) => {
      const given = { rate, concurrency, fair, drain, undrain };
      const isPolicy = Object.values(given).some((value) => value !== undefined);
      if (isPolicy === (code === true)) {
        const remedy = isPolicy
          ? "leave it out, or leave out the other changes, such as --rate"
          : "give it, or another change, such as --rate, --concurrency, --fair or --drain";
        const where = "sluice set";
        throw new InvalidOptionError({ where, option: "--code", value: code, remedy });
      }
      return { policy: isPolicy ? policyOf(given) : "code" };
    },
    async run(door, { bucket: name, policy }, { options, perform }) {
      if (options["dryRun"] === true) {
        return previewOf(door, String(name), policy as PolicyOptions | "code");
      }
      // A change in an emergency must not fail because the policy before it cannot be read.
      const read = async () => (await door.bucket(String(name))).peek();
      const before = policy === "code" ? undefined : await read().catch(() => undefined);
      const made = (await perform()) as { readonly status?: BucketStatus };
      const dropped = before === undefined ? [] : droppedBy(before, made.status);
      return dropped.length === 0 ? made : { status: { ...made.status, dropped } };
    },
    result: (made) => ("status" in made ? made.status : made),
    show: (printed: (BucketStatus & { readonly dropped?: string[] }) | Preview | CodePreview) => {
      if (!("pausedForMs" in printed)) return showPreview(printed);
      const { dropped } = printed;
      const after = AFTERWARDS.show(printed, {}) as string;
      return dropped === undefined
        ? after
        : [after, `It replaces all shared limits; no longer in force: ${dropped.join(", ")}.`];
    },
  },
  form: {
    title: "Change the rate of {name}",
    fields: ["rate", "forMs", "reason"],
    confirm: "Change rate",
    done: "{name} now runs at {rate}.",
  },
});

export const pause = operation({
  ...STEER,
  name: "bucket.pause",
  summary: "Starts no calls, of all keys or of one",
  input: z.strictObject({ ...BUCKET, ...PAUSING }),
  undoable: true,
  run: (context, { bucket: name, ...options }) =>
    changed(context, name, (found) => found.pause({ ...options, ...context.byHand } as object)),
  http: { path: "POST /api/v1/buckets/:bucket/pause", tag: "steering" },
  cli: {
    ...AFTERWARDS,
    command: "pause <name>",
    about: "starts no calls of a bucket, or no jobs of a queue; of all or of one key",
    examples: ["sluice pause hooks --key acme endpoint-7 --for 15m"],
  },
  form: { ...PAUSE_FORM, confirm: "Pause all calls" },
});

export const resume = operation({
  ...STEER,
  name: "bucket.resume",
  summary: "Ends a pause, of all keys or of one",
  input: z.strictObject({ ...BUCKET, ...RESUMING }),
  undoable: true,
  run: (context, { bucket: name, ...options }) =>
    changed(context, name, (found) => found.resume({ ...options, ...context.byHand } as object)),
  http: { path: "POST /api/v1/buckets/:bucket/resume", tag: "steering" },
  cli: {
    ...AFTERWARDS,
    command: "resume <name>",
    about: "ends a pause of a bucket or a queue, of all or of one key",
    examples: ["sluice resume hooks"],
  },
  form: RESUME_FORM,
});

export const undo = operation({
  ...STEER,
  name: "bucket.undo",
  summary: "Undoes the last change that is still in force",
  input: z.strictObject({
    ...BUCKET,
    id: z
      .string()
      .optional()
      .describe("The change to undo. If another one is the last, the request fails."),
    generation: GENERATION,
    ...BY_HAND,
  }),
  undoable: false,
  run: (context, { bucket: name, ...options }) =>
    changed(context, name, (found) => found.undo({ ...options, ...context.byHand })),
  http: { path: "POST /api/v1/buckets/:bucket/undo", tag: "steering" },
  cli: {
    ...AFTERWARDS,
    command: "undo <name>",
    about: "undoes the last change of a bucket or a queue",
    examples: ["sluice undo stripe"],
    result: (made) => {
      assertUndone(made);
      return made.status;
    },
  },
  form: {
    title: "Undo the last change of {name}",
    fields: ["reason"],
    confirm: "Undo",
    done: "The change was undone.",
  },
});

/**
 * Returns the shared limits that a change removes without a replacement. A new limit replaces one
 * old limit of the same unit, a rate replaces a rate, and a concurrency limit replaces a concurrency
 * limit. If fewer limits of a unit and kind remain, all old ones that are gone are returned.
 */
function droppedBy(before: BucketState, after: BucketState | undefined): string[] {
  if (after === undefined) return [];
  const remaining = sharedBySort(after);
  return [...sharedBySort(before)].flatMap(([sort, names]) => {
    const kept = remaining.get(sort) ?? [];
    return kept.length >= names.length ? [] : names.filter((name) => !kept.includes(name));
  });
}

/** Returns the names of the shared limits, by their unit and by whether they are rates. */
function sharedBySort({ limits }: BucketState): ReadonlyMap<string, readonly string[]> {
  const sorts = new Map<string, string[]>();
  for (const { name, unit } of limits) {
    const sort = `${/^\d+ at once/.test(name) ? "concurrency" : "rate"} of ${unit}`;
    sorts.set(sort, [...(sorts.get(sort) ?? []), name]);
  }
  return sorts;
}

interface PreviewGiven {
  readonly policy?: object | undefined;
  readonly pausedForMs?: number | "forever" | undefined;
}

type Change = Parameters<Bucket["preview"]>[0];

export function changeOf({ policy = {}, pausedForMs }: PreviewGiven): Change {
  const ms = pausedForMs === "forever" ? Infinity : pausedForMs;
  return (ms === undefined ? policy : { ...policy, pausedForMs: ms }) as Change;
}

/** Reads a policy from the command-line options. */
function policyOf(given: Readonly<Record<string, unknown>>): object {
  const { rate, concurrency, fair, drain = [], undrain = [] } = given;
  const drained = [
    ...(drain as readonly string[]).map((name) => [name, { drained: true }]),
    ...(undrain as readonly string[]).map((name) => [name, { drained: false }]),
  ];
  return {
    ...(drained.length > 0 && { members: Object.fromEntries(drained) }),
    ...(rate === undefined ? {} : { rate }),
    ...(concurrency === undefined ? {} : { concurrency: Number(concurrency) }),
    ...(fair === undefined ? {} : { fair: fairOf(fair as readonly string[]) }),
  };
}

/** Reads how keys take turns: `weights.gold=2`, `floors.acme=9000/min tokens`. */
function fairOf(given: readonly string[]): boolean | object {
  if (given.length === 1 && (given[0] === "on" || given[0] === "off")) return given[0] === "on";
  const parts = { weights: new Map<string, number>(), floors: new Map<string, unknown>() };
  let critical: number | undefined;
  for (const text of given) {
    const [, part, key = "", said = ""] =
      /^(?:(weights|floors)\.(.+)|critical)=(.+)$/s.exec(text) ?? [];
    const [, rate, unit] = /^(.*\S) (\S+)$/.exec(said) ?? [];
    if (said === "") {
      const remedy =
        "give on, off, or parts such as weights.gold=2, floors.small=20/s, critical=0.5";
      throw new InvalidOptionError({ where: "sluice set", option: "--fair", value: text, remedy });
    }
    if (part === "weights") parts.weights.set(key, Number(said));
    else if (part === "floors") parts.floors.set(key, unit === undefined ? said : { [unit]: rate });
    else critical = Number(said);
  }
  const { weights, floors } = parts;
  return {
    ...(weights.size > 0 && { weights: Object.fromEntries(weights) }),
    ...(floors.size > 0 && { floors: Object.fromEntries(floors) }),
    ...(critical !== undefined && { critical }),
  };
}

export function readsPreview(): Pick<CommandLine<unknown>, "hidden" | "options" | "read"> {
  return {
    hidden: ["policy", "pausedForMs"],
    options: [
      ["--rate <rate>", "the rate that would be in force, such as 50/s"],
      ["--concurrency <calls>", "how many calls at once"],
      FAIR_OPTION,
      ["--paused", "as if it were paused without an end"],
    ],
    read: (options) => ({
      policy: policyOf(options),
      ...(options["paused"] === true && { pausedForMs: "forever" }),
    }),
  };
}

/** Reads the effect that a change would have on the calls of a bucket and on the jobs of its queues. */
async function previewOf(
  { sluice, facts, bucket: find }: Context,
  name: string,
  change: Change | "code",
): Promise<Preview | CodePreview> {
  const found = await find(name);
  if (change === "code") {
    const { policy: now } = await found.peek();
    return { bucket: name, now, after: "the policy of the code" };
  }
  const names = (await facts.queuesOf(name)).slice(0, MOST_FORECASTS);
  const [ofBucket, ...queues] = await Promise.all([
    found.preview(change),
    ...names.map(async (queue) => {
      const its = await (await sluice.findQueue(queue))?.preview(change);
      return its === undefined ? [] : [{ queue, ...its }];
    }),
  ]);
  return { bucket: name, ...ofBucket, queues: queues.flat() };
}
