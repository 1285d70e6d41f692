/**
 * Declares operations. An operation is one thing that an operator can look at or change. Its
 * declaration defines the HTTP route, the command, the form on the board and the MCP tool.
 */
import * as z from "zod";
import { InvalidOptionError, type ErrorCode } from "../core/errors.ts";
import { readOptions } from "../core/input/options.ts";
import type { WhoAndWhy } from "../core/input/who-and-why.ts";
import type { Queue } from "../queue/queue.ts";
import type { Sluice } from "../sluice/create-sluice.ts";
import type { Bucket } from "../throttle/bucket.ts";
import type { FoundWebhooks } from "../webhooks/index.ts";
import { REASON } from "./fields.ts";
import type { Facts } from "./facts.ts";
import type { Shown } from "./text.ts";

/** The role that a token needs. */
export type Needs = "view" | "act" | "enqueue";

/**
 * The names and the data that the result may contain.
 *
 * `names`:
 *
 * - `"of the target"`: only the target, which must be in the scope of the caller.
 * - `"in the scope"`: `run` leaves out all names outside the scope.
 * - `"of processes"`: every caller may see the names.
 *
 * `data`: whether the result can contain customer data. `"on request"` means only if the field
 * `data` is set. Callers with the role `view` may not set it.
 */
interface Privacy {
  readonly names: "of the target" | "in the scope" | "of processes";
  readonly data: "never" | "on request";
}

type Target = "bucket" | "queue" | "job" | "endpoint" | "sender" | "all";

/** A second HTTP path of the same operation, for older clients. */
export interface OtherPath<Result> {
  readonly path: string;
  readonly needs?: Needs;
  /** Converts the result for this path. By default, the result is not converted. */
  shape?(result: NoInfer<Result>): object;
  readonly summary?: string;
  /** The JSON Schema of the converted result. */
  readonly output?: object;
  /** Fields whose defaults differ on this path. */
  readonly defaults?: Readonly<Record<string, unknown>>;
  /** Rejects bodies that are invalid only for this path. */
  readonly check?: (body: unknown) => void;
}

export interface CommandLine<Result> {
  /**
   * The command and its arguments: `"pause <name>"`. Two operations may share a command if the
   * second one has a `when`.
   */
  readonly command: string;
  /** What the command does. Defaults to the summary. */
  readonly about?: string;
  /** The fields that the arguments set, in order. Defaults to the names of the arguments. */
  readonly args?: readonly string[];
  /** If two operations share a command, this flag or argument selects this operation. */
  readonly when?: "--queue" | "[job]";
  readonly examples: readonly string[];
  /** Fields whose defaults differ on the command line. */
  readonly defaults?: Readonly<Record<string, unknown>>;
  /** Fields that have no option. `read` creates them. */
  readonly hidden?: readonly string[];
  /** Options that are not fields, as flags and help texts. */
  readonly options?: readonly (readonly [flags: string, help: string])[];
  /** The position of the argument that names a file. `read` receives the text of the file. */
  readonly fileAt?: number;
  /** Creates fields from the options and arguments. */
  readonly read?: (
    options: Readonly<Record<string, unknown>>,
    args: readonly unknown[],
  ) => Readonly<Record<string, unknown>>;
  /** The reason why the command needs `--yes`. */
  readonly confirm?: string;
  /** Runs in place of the operation, if the command line prints something else than its result. */
  readonly run?: (
    context: Context,
    input: Readonly<Record<string, unknown>>,
    more: CommandRun,
  ) => unknown;
  /** Returns the value to print, also with `--json`. Defaults to the result. */
  result?(result: NoInfer<Result>, input: Readonly<Record<string, unknown>>): unknown;
  /** Formats the printed value for people. */
  show(printed: unknown, input: Readonly<Record<string, unknown>>): Shown;
  /** Runs after printing. Throws if a part of the operation failed. */
  after?(result: NoInfer<Result>, input: Readonly<Record<string, unknown>>): void;
}

interface CommandRun {
  readonly options: Readonly<Record<string, unknown>>;
  /** Runs the operation itself. */
  readonly perform: () => Promise<unknown>;
}

/**
 * The texts and fields of this operation's dialog on the board. `{name}` in a text is replaced by
 * the target's name.
 */
interface Form {
  readonly title: string;
  readonly fields: readonly string[];
  readonly confirm: string;
  readonly done: string;
  readonly danger?: boolean;
}

export interface Operation<Schema extends z.ZodObject = z.ZodObject, Result = unknown> {
  /**
   * The name of the operation: `"queue.pause"`. The part after the dot is the action in the change
   * log.
   */
  readonly name: string;
  readonly target: Target;
  readonly summary: string;
  readonly input: Schema;
  /** A description of the result, and its JSON Schema. */
  readonly answers: string;
  readonly output: object;
  readonly needs: Needs;
  readonly privacy: Privacy;
  /** True if `undo` can undo the change. */
  readonly undoable: boolean;
  run(context: Context, input: z.output<Schema>): Promise<Result>;
  readonly http: {
    /**
     * The method and path of the HTTP route: `"POST /api/v1/queues/:queue/pause"`. The fields come
     * from the path parameters, the query and the body.
     */
    readonly path: string;
    readonly tag: string;
    readonly also?: readonly OtherPath<Result>[];
  };
  readonly cli: CommandLine<Result>;
  readonly form?: Form;
}

/** Any operation, with input of any type. */
export type AnyOperation = Operation<z.ZodObject, unknown>;

export function operation<Schema extends z.ZodObject, Result>(
  declared: Operation<Schema, Result>,
): AnyOperation {
  return declared;
}

/** The caller of an operation, and the caller's rights. */
export interface Caller {
  /** Returns the author of a change. `said` is the name that the input contains, if any. */
  readonly by: (said?: string) => string;
  readonly mayUse: (needs: Needs) => boolean;
  readonly mayBucket: (name: string) => boolean;
  readonly mayQueue: (name: string) => boolean;
}

/** The context that the HTTP API, the command line or MCP passes to an operation. */
export interface Door {
  readonly sluice: Sluice;
  readonly facts: Facts;
  readonly caller: Caller;
  /** Logs a change: its operation, target and author. */
  readonly changed?: (change: {
    readonly name: string;
    readonly by: string;
    readonly target: Readonly<Record<string, unknown>>;
  }) => void;
  /** Receives the error if a read after a change fails. Without this function, the call fails. */
  readonly warn?: (error: unknown) => void;
}

export interface Context extends Door {
  /** The author and the reason of this change. */
  readonly byHand: WhoAndWhy;
  readonly bucket: (name: string) => Promise<Bucket>;
  readonly queue: (name: string) => Promise<Queue<unknown>>;
  readonly sender: (name: string) => Promise<FoundWebhooks>;
  /** Waits for a read after a change. Returns undefined if the read fails. */
  beside<Read>(reading: Promise<Read>): Promise<Read | undefined>;
}

type RefusalCode =
  | Extract<ErrorCode, "ERR_JOB_MISSING" | "ERR_ENDPOINT_MISSING">
  | "ERR_BUCKET_MISSING"
  | "ERR_QUEUE_MISSING"
  | "ERR_SENDER_MISSING"
  | "ERR_FORBIDDEN";

/** Thrown when the target does not exist, or the caller lacks the right. */
export class RefusedError extends Error {
  override readonly name = "RefusedError";
  readonly code: RefusalCode;
  /** The name that does not exist. Undefined for all other refusals. */
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

/** Returns the field that names a bucket or queue, which must be in the scope of the caller. */
export function scopeOf({ target }: AnyOperation): "bucket" | "queue" | "sender" | undefined {
  if (target === "all") return undefined;
  if (target === "bucket") return target;
  return target === "queue" || target === "job" ? "queue" : "sender";
}

/**
 * Runs an operation for a caller.
 *
 * @throws {@link RefusedError} when the caller lacks the right, or the target does not exist.
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
  // In operations on dead letters, `reason` is a filter and not the reason of the change.
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
    async sender(name) {
      // Loaded only here, because the client for deliveries is large.
      const { findWebhooks } = await import("../webhooks/index.ts");
      return found("sender", name, await findWebhooks(door.sluice, name));
    },
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
  // Callers that enqueue may see the data, because producers know the data of jobs.
  if (data === "never" || input["data"] !== true) return;
  if (caller.mayUse("act") || caller.mayUse("enqueue")) return;
  throw new RefusedError(
    "ERR_FORBIDDEN",
    'Data is shown to tokens of the role "act" alone; ask without data.',
  );
}

/** @throws {@link RefusedError} when the name is outside the scope of the caller. */
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

interface InputSchema {
  readonly properties: Readonly<Record<string, object>>;
  readonly required: readonly string[];
}

/** Each server and each request of an agent needs the schemas of all operations. */
const INPUT_SCHEMAS = new WeakMap<AnyOperation["input"], InputSchema>();

/** Returns the JSON Schema of an operation's input, for OpenAPI, forms and tools. */
export function inputSchemaOf({ input }: AnyOperation): InputSchema {
  const known = INPUT_SCHEMAS.get(input);
  if (known !== undefined) return known;
  const made = z.toJSONSchema(input as z.ZodObject, {
    io: "input",
    override({ jsonSchema }) {
      if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
    },
  });
  const { properties = {}, required = [] } = made;
  const schema = { properties: properties as InputSchema["properties"], required };
  INPUT_SCHEMAS.set(input, schema);
  return schema;
}
