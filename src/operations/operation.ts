/**
 * One thing that an operator can look at or change, declared once. The HTTP route, the command, the form of the board and
 * the MCP tool are made from it.
 */
import * as z from "zod";
import { InvalidOptionError, type ErrorCode } from "../core/errors.ts";
import { readOptions } from "../core/input/options.ts";
import type { WhoAndWhy } from "../core/input/who-and-why.ts";
import type { Queue } from "../queue/queue.ts";
import type { Sluice } from "../sluice/create-sluice.ts";
import type { Bucket } from "../throttle/bucket.ts";
import { findWebhooks, type FoundWebhooks } from "../webhooks/index.ts";
import { REASON } from "./fields.ts";
import type { Facts } from "./facts.ts";
import type { Shown } from "./text.ts";

/** What a token must be for. */
export type Needs = "view" | "act" | "enqueue";

/**
 * LimitOwner names and data the result shows.
 *
 * `names`: of the target alone, which must be in the scope of the caller; or of many, of which `run` leaves out those
 * beyond the scope; or of processes, which every caller may see.
 *
 * `data`: whether the result can hold what customers sent. `"on request"`: only with the field `data`, which is refused to
 * callers that may only look.
 */
interface Privacy {
  readonly names: "of the target" | "in the scope" | "of processes";
  readonly data: "never" | "on request";
}

type Target = "bucket" | "queue" | "job" | "endpoint" | "sender" | "all";

/** A second path of the same operation, which older clients ask. */
export interface OtherPath<Result> {
  readonly path: string;
  readonly needs?: Needs;
  /** Makes the fields that this path answers. Defaults to the same. */
  shape?(result: NoInfer<Result>): object;
  readonly summary?: string;
  /** The JSON Schema of what `shape` makes. */
  readonly output?: object;
  /** Defaults of fields that differ. */
  readonly defaults?: Readonly<Record<string, unknown>>;
  /** Refuses bodies that only this path refuses. */
  readonly check?: (body: unknown) => void;
}

export interface CommandLine<Result> {
  /** The command and its arguments: `"pause <name>"`. Two operations may share one, if the second has a `when`. */
  readonly command: string;
  /** What the command does, where the summary is not said of the command line. */
  readonly about?: string;
  /** The fields that the arguments are, in their order. Defaults to the names of the arguments. */
  readonly args?: readonly string[];
  /** Of two operations with one command, this one is meant if the flag or the argument is given. */
  readonly when?: "--queue" | "[job]";
  readonly examples: readonly string[];
  /** Values of fields that differ from the defaults. */
  readonly defaults?: Readonly<Record<string, unknown>>;
  /** Fields that are no options, since `read` makes them. */
  readonly hidden?: readonly string[];
  /** More options than the fields are: flags and their help. */
  readonly options?: readonly (readonly [flags: string, help: string])[];
  /** Makes fields of options and arguments. */
  readonly read?: (
    options: Readonly<Record<string, unknown>>,
    args: readonly unknown[],
  ) => Readonly<Record<string, unknown>>;
  /** Needs `--yes`, and why. */
  readonly confirm?: string;
  /** Runs in place of the operation where the command line prints another selection of the same facts. */
  readonly run?: (
    context: Context,
    input: Readonly<Record<string, unknown>>,
    more: CommandRun,
  ) => unknown;
  /** What is printed, and is the document with `--json`. Defaults to the result. */
  result?(result: NoInfer<Result>, input: Readonly<Record<string, unknown>>): unknown;
  /** The same as people read it. */
  show(printed: unknown, input: Readonly<Record<string, unknown>>): Shown;
  /** Throws, after all was printed, if a part could not be done. */
  after?(result: NoInfer<Result>, input: Readonly<Record<string, unknown>>): void;
}

interface CommandRun {
  readonly options: Readonly<Record<string, unknown>>;
  /** Runs the operation itself. */
  readonly perform: () => Promise<unknown>;
}

/** The dialog of the board. `{name}` is the target. */
interface Form {
  readonly title: string;
  readonly fields: readonly string[];
  readonly confirm: string;
  readonly done: string;
  readonly danger?: boolean;
}

export interface Operation<Schema extends z.ZodObject = z.ZodObject, Result = unknown> {
  /** `"queue.pause"`: the log of changes names the change by the part after the dot. */
  readonly name: string;
  readonly target: Target;
  readonly summary: string;
  readonly input: Schema;
  /** What is answered, in a sentence, and its JSON Schema. */
  readonly answers: string;
  readonly output: object;
  readonly needs: Needs;
  readonly privacy: Privacy;
  /** Whether `undo` of the target takes the change back. */
  readonly undoable: boolean;
  run(context: Context, input: z.output<Schema>): Promise<Result>;
  readonly http: {
    /** `"POST /api/v1/queues/:queue/pause"`; its parameters are fields, and so is all of the query or the body. */
    readonly path: string;
    readonly tag: string;
    readonly also?: readonly OtherPath<Result>[];
  };
  readonly cli: CommandLine<Result>;
  readonly form?: Form;
}

/** Any operation: what a door calls with the input that it read. */
export type AnyOperation = Operation<z.ZodObject, unknown>;

export function operation<Schema extends z.ZodObject, Result>(
  declared: Operation<Schema, Result>,
): AnyOperation {
  return declared;
}

/** Who calls, and what that caller may do. */
export interface Caller {
  /** Who makes a change, if the input says `said`. */
  readonly by: (said?: string) => string;
  readonly mayUse: (needs: Needs) => boolean;
  readonly mayBucket: (name: string) => boolean;
  readonly mayQueue: (name: string) => boolean;
}

/** What a door gives to the operations that it runs. */
export interface Door {
  readonly sluice: Sluice;
  readonly facts: Facts;
  readonly caller: Caller;
  /** Logs a change that was made: its operation, its target and who made it. */
  readonly changed?: (change: {
    readonly name: string;
    readonly by: string;
    readonly target: Readonly<Record<string, unknown>>;
  }) => void;
  /** Hears why a reading beside a change failed; without it, the call fails. */
  readonly warn?: (error: unknown) => void;
}

export interface Context extends Door {
  /** Who makes this change, and why. */
  readonly byHand: WhoAndWhy;
  readonly bucket: (name: string) => Promise<Bucket>;
  readonly queue: (name: string) => Promise<Queue<unknown>>;
  readonly sender: (name: string) => Promise<FoundWebhooks>;
  /** Reads beside a change that is made already: undefined if it cannot be read. */
  beside<Read>(reading: Promise<Read>): Promise<Read | undefined>;
}

type RefusalCode =
  | Extract<ErrorCode, "ERR_JOB_MISSING" | "ERR_ENDPOINT_MISSING">
  | "ERR_BUCKET_MISSING"
  | "ERR_QUEUE_MISSING"
  | "ERR_SENDER_MISSING"
  | "ERR_FORBIDDEN";

/** There is no such thing, or the caller may not. */
export class RefusedError extends Error {
  override readonly name = "RefusedError";
  readonly code: RefusalCode;
  /** What there is not. */
  readonly missing: string | undefined;

  constructor(code: RefusalCode, message: string, missing?: string) {
    super(message);
    this.code = code;
    this.missing = missing;
  }
}

export function jobMissing(queue: string, id: string): RefusedError {
  return new RefusedError(
    "ERR_JOB_MISSING",
    `Queue ${JSON.stringify(queue)} has no job ${JSON.stringify(id)}: there was none, or it has ended and is no longer kept.`,
  );
}

/** The field that names the bucket or queue whose scope counts. */
export function scopeOf({ target }: AnyOperation): "bucket" | "queue" | "sender" | undefined {
  if (target === "all") return undefined;
  if (target === "bucket") return target;
  return target === "queue" || target === "job" ? "queue" : "sender";
}

/**
 * Runs an operation for a caller.
 *
 * @throws {@link RefusedError} when the caller may not, or there is no such target.
 * @throws {@link InvalidOptionError} when the input can never work.
 */
export async function perform(
  called: AnyOperation,
  door: Door,
  given: Readonly<Record<string, unknown>>,
  needs: Needs = called.needs,
): Promise<unknown> {
  const schema = called.input as z.ZodObject;
  const input = readOptions(called.name, schema, given) as Record<string, unknown>;
  assertMay(called, door.caller, { ...input, needs });
  const { by, why, ...rest } = input as { by?: string; why?: string; reason?: string };
  // Of dead letters, `reason` is a filter.
  const saysReason = (schema.shape as Record<string, unknown>)["reason"] === REASON;
  if (saysReason && why !== undefined && rest.reason !== undefined) {
    const remedy = "leave it out, since there is a reason; why is its old name";
    throw new InvalidOptionError({ where: called.name, option: "why", value: why, remedy });
  }
  const reason = saysReason ? (rest.reason ?? why) : why;
  if (saysReason) delete rest.reason;
  const byHand = { by: door.caller.by(by), ...(reason === undefined ? {} : { reason }) };
  const context = contextOf(door, byHand);
  const result: unknown = await called.run(context, rest);
  if (called.needs === "act") {
    door.facts.forget();
    const inPath = [...called.http.path.matchAll(/:(\w+)/g)].map(([, field]) => field!);
    const target = Object.fromEntries(
      inPath.map((field) => [field, rest[field as keyof typeof rest]]),
    );
    door.changed?.({ name: called.name, by: byHand.by, target });
  }
  return result;
}

export function contextOf(door: Door, byHand: WhoAndWhy): Context {
  return {
    ...door,
    byHand,
    bucket: async (name) => found("bucket", name, await door.sluice.find(name)),
    queue: async (name) => found("queue", name, await door.sluice.findQueue(name)),
    sender: async (name) => found("sender", name, await findWebhooks(door.sluice, name)),
    async beside(reading) {
      try {
        return await reading;
      } catch (error) {
        if (door.warn === undefined) throw error;
        door.warn(error);
        return undefined;
      }
    },
  };
}

function assertMay(
  called: AnyOperation,
  caller: Caller,
  input: Readonly<Record<string, unknown>> & { readonly needs: Needs },
): void {
  if (!caller.mayUse(input.needs)) {
    throw new RefusedError("ERR_FORBIDDEN", `This needs a caller that may ${input.needs}.`);
  }
  const scope = scopeOf(called);
  const name = scope === undefined ? undefined : String(input[scope]);
  if (name !== undefined) assertInScope(caller, scope === "bucket" ? "bucket" : "queue", name);
  const { data } = called.privacy;
  // Who enqueues jobs knows their data.
  if (data === "never" || input["data"] !== true) return;
  if (caller.mayUse("act") || caller.mayUse("enqueue")) return;
  throw new RefusedError(
    "ERR_FORBIDDEN",
    'Data is shown to tokens of the role "act" alone; ask without data.',
  );
}

/** @throws {@link RefusedError} when the name is beyond the scope of the caller. */
export function assertInScope(caller: Caller, what: "bucket" | "queue", name: string): void {
  if (what === "bucket" ? caller.mayBucket(name) : caller.mayQueue(name)) return;
  throw new RefusedError("ERR_FORBIDDEN", `The token is not for ${what} ${JSON.stringify(name)}.`);
}

const MISSING = {
  bucket: ["ERR_BUCKET_MISSING", "bucket"],
  queue: ["ERR_QUEUE_MISSING", "queue"],
  sender: ["ERR_SENDER_MISSING", "sender of webhooks"],
} as const;

function found<Found>(
  what: keyof typeof MISSING,
  name: string,
  thing: Found | undefined,
): NonNullable<Found> {
  if (thing !== undefined && thing !== null) return thing;
  const [code, words] = MISSING[what];
  throw new RefusedError(code, `There is no ${words} ${JSON.stringify(name)}.`, name);
}

/** The JSON Schema of an input, as OpenAPI, forms and tools have it. */
export function inputSchemaOf({ input }: AnyOperation): {
  readonly properties: Readonly<Record<string, object>>;
  readonly required: readonly string[];
} {
  const made = z.toJSONSchema(input as z.ZodObject, {
    io: "input",
    override({ jsonSchema }) {
      if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
    },
  });
  const { properties = {}, required = [] } = made;
  return { properties: properties as Readonly<Record<string, object>>, required };
}
