/**
 * Sends Lua scripts by digest. Sends the text if Redis does not know a script, and handles a full
 * memory.
 */
import { createHash } from "node:crypto";
import type { Cluster, Command, Redis } from "ioredis";
import { readLuaFile } from "./lua-source.ts";
import {
  nothing,
  packNumbers,
  partNames,
  readerOf,
  writerOf,
  type ArgName,
  type Fields,
  type InputOf,
  type Operand,
  type Parts,
  type Read,
  type Reader,
} from "./shape.ts";

const INCLUDE = /^-- @include (\S+)$/gm;

/** An argument of a script. A list of numbers becomes one argument, packed as doubles. */
export type Argument = Operand | readonly number[];

/**
 * One script in `lua/`. Converts a typed input to Redis keys and arguments, and the reply to a
 * typed value.
 */
export interface Script<Input, Output> {
  /** The script's path below `lua/`, without the file extension: `"bucket/slots-draw"`. */
  readonly name: string;
  readonly sha: string;
  readonly source: string;
  readonly keys: (input: Input) => readonly string[];
  readonly args: (input: Input) => readonly Argument[];
  /**
   * The names of the arguments, if shapes describe them. The linter compares the names with the
   * script's header.
   */
  readonly argNames?: readonly ArgName[];
  /** True if the script stores new jobs. Only such scripts may fail when Redis's memory is full. */
  readonly bringsJobs?: boolean;
  /** True if the reply is bytes, not text. */
  readonly isPacked?: boolean;
  /**
   * Returns a name that is the same for all calls that must run in the order in which they were sent, even if they do
   * not wait for each other. No other script uses this name. Undefined for a call that may overtake others.
   */
  readonly orderOf?: (input: Input) => string | undefined;
  readonly decode: (reply: unknown, input: Input) => Output;
}

export function defineScript<Input, Output>(
  definition: Omit<Script<Input, Output>, "sha" | "source">,
): Script<Input, Output> {
  const source = readLua(definition.name);
  return { ...definition, source, sha: createHash("sha1").update(source).digest("hex") };
}

interface Shaped<Keyed, Arguments> extends Pick<
  Script<Keyed, unknown>,
  "name" | "keys" | "bringsJobs" | "orderOf"
> {
  /** The arguments in order. Defaults to no arguments. */
  readonly args?: Arguments;
}

/**
 * Describes a script by the shapes of its arguments and its reply. Pass `decode` instead of `reply`
 * if no shape can describe the reply.
 */
export function shapeScript<Keyed, Arguments extends Fields, Output>(
  shaped: Shaped<Keyed, Arguments> & {
    readonly decode: (reply: unknown, input: Keyed & InputOf<Arguments>) => Output;
  },
): Script<Keyed & InputOf<Arguments>, Output>;
export function shapeScript<
  Keyed,
  const Arguments extends Fields = {},
  Reply extends Reader<unknown> | Parts = Reader<void>,
>(
  shaped: Shaped<Keyed, Arguments> & { readonly reply?: Reply },
): Script<Keyed & InputOf<Arguments>, Read<Reply>>;
export function shapeScript({
  args = {},
  reply = nothing,
  decode,
  ...shaped
}: Shaped<never, Fields> & {
  readonly reply?: Reader<unknown> | Parts;
  readonly decode?: (reply: unknown, input: never) => unknown;
}): Script<never, unknown> {
  const reader = readerOf(reply);
  return defineScript({
    ...shaped,
    args: writerOf(args),
    argNames: partNames(args),
    decode: decode ?? ((answer) => reader.read(answer)),
  });
}

export type ScriptInput<Of> = Of extends Script<infer Input, unknown> ? Input : never;
export type ScriptOutput<Of> = Of extends Script<never, infer Output> ? Output : never;

/** A table of scripts. Each name becomes the method that runs the script. */
type ScriptTable = Readonly<Record<string, Script<never, unknown>>>;

/** One method for each script of a table. */
export type Bound<Table, Context> = {
  readonly [Name in keyof Table]: Table[Name] extends Script<infer Input, infer Output>
    ? (input: Omit<Input, keyof Context>) => Promise<Output>
    : never;
};

/**
 * Creates a method for each script, which runs the script on this client. `context` is the part of
 * the input that all calls share.
 */
export function bindScripts<const Table extends ScriptTable, Context>(
  redis: Redis | Cluster,
  context: Context,
  table: Table,
): Bound<Table, Context> {
  const bind = (script: Script<never, unknown>) => (input: object) =>
    runScript(redis, script, { ...context, ...input } as never);
  const methods = Object.entries(table).map(([name, script]) => [name, bind(script)] as const);
  return Object.fromEntries(methods) as unknown as Bound<Table, Context>;
}

/**
 * Returns the text of `lua/<name>.lua`. Each `-- @include` line is replaced by the included file.
 */
export function readLua(name: string): string {
  return readLuaFile(name).replace(INCLUDE, (_line, included: string) => readLua(included));
}

/**
 * Runs a script by its digest. Sends the script's text only to a server that does not know the
 * script.
 */
export async function runScript<Input, Output>(
  redis: Redis | Cluster,
  script: Script<Input, Output>,
  input: Input,
): Promise<Output> {
  const keys = script.keys(input);
  const operands = [keys.length, ...keys, ...script.args(input).map(operandOf)] as const;
  const order = script.orderOf?.(input);
  if (order !== undefined)
    return script.decode(await sendInOrder({ redis, script, order }, operands), input);
  try {
    return script.decode(await send("evalsha", script.sha), input);
  } catch (refusal) {
    const text = { source: script.source, send: (source: string) => send("eval", source) };
    return script.decode(await resendRefused(refusal, text, script.bringsJobs !== true), input);
  }

  function send(command: "eval" | "evalsha", text: string): Promise<unknown> {
    const sent = [command, text, ...operands] as const;
    return script.isPacked === true ? redis.callBuffer(...sent) : redis.call(...sent);
  }
}

function operandOf(argument: Argument): Operand {
  if (typeof argument !== "object" || Buffer.isBuffer(argument)) return argument;
  return packNumbers(argument);
}

/** Calls of one script that run in the order in which they were sent. */
interface OrderedCalls {
  readonly redis: Redis | Cluster;
  readonly script: Pick<Script<never, unknown>, "source" | "sha">;
  readonly order: string;
}

interface OrderedCall {
  readonly operands: readonly Operand[];
  readonly settle: (error: Error | null, reply?: unknown) => void;
}

/** The most operands of the calls in one transaction. Redis is blocked while it runs them. */
const OPERANDS_AT_ONCE = 2_000;

/** For each client, the calls that wait until an earlier call with the same order is done. */
const waitingCalls = new WeakMap<object, Map<string, OrderedCall[]>>();

function sendInOrder(calls: OrderedCalls, operands: readonly Operand[]): Promise<unknown> {
  const { redis, order } = calls;
  const waiting = waitingCalls.get(redis) ?? new Map<string, OrderedCall[]>();
  waitingCalls.set(redis, waiting);
  return new Promise((resolve, reject) => {
    const settle: OrderedCall["settle"] = (error, reply) =>
      error ? reject(error) : resolve(reply);
    const others = waiting.get(order);
    if (others !== undefined) {
      others.push({ operands, settle });
      return;
    }
    const next: OrderedCall[] = [{ operands, settle }];
    waiting.set(order, next);
    void sendAll(next);
  });

  async function sendAll(next: OrderedCall[]): Promise<void> {
    while (next.length > 0) {
      const some = takeSome(next);
      const results = await sendTogether(calls, some);
      for (const [index, [error, reply]] of results.entries()) some[index]!.settle(error, reply);
    }
    waiting.delete(order);
  }
}

/** Removes the calls of the next transaction, at least one, and returns them. */
function takeSome(next: OrderedCall[]): readonly OrderedCall[] {
  let count = 0;
  const end = next.findIndex(({ operands }, index) => {
    count += operands.length;
    return index > 0 && count > OPERANDS_AT_ONCE;
  });
  return next.splice(0, end < 0 ? next.length : end);
}

/**
 * Sends calls in one transaction. A server that does not know the script then refuses all of them, so that none can run
 * before they are sent again with the text of the script.
 */
async function sendTogether(
  { redis, script: { sha, source } }: OrderedCalls,
  calls: readonly OrderedCall[],
): Promise<(readonly [error: Error | null, reply?: unknown])[]> {
  const results = await attempt("evalsha", sha);
  return isUnknownScript(results[0]![0]) ? attempt("eval", source) : results;

  async function attempt(
    command: "eval" | "evalsha",
    text: string,
  ): ReturnType<typeof sendTogether> {
    const [first, ...others] = calls.map(({ operands }) => operands);
    try {
      if (others.length === 0) return [[null, await redis.call(command, text, ...first!)]];
      const transaction = redis.multi();
      transaction.call(command, text, ...first!);
      for (const operands of others) transaction.call("evalsha", sha, ...operands);
      return (await transaction.exec())!;
    } catch (error) {
      // If the server refused to begin the transaction, the first refused command has the reason.
      const { previousErrors = [] } = error as { readonly previousErrors?: readonly Error[] };
      return calls.map(() => [previousErrors[0] ?? (error as Error)]);
    }
  }
}

/**
 * A line that is put before a script when the server's memory is full. Such a server refuses each
 * command that may need more memory, unless the script has already written. Deleting a key that
 * does not exist counts as a write. Our scripts may run then: a draw, a settlement or a lane change
 * needs almost no memory, and later frees some.
 */
const WHEN_FULL = "redis.call('DEL', KEYS[1] .. ':none')\n";

/**
 * Sends the text of a script that Redis has refused before the script changed anything. This
 * handles a script that Redis does not know. Unless `whenFull` is false, it also handles a script
 * for which Redis had no memory.
 *
 * @throws the refusal if Redis would refuse the text too.
 */
export async function resendRefused(
  refusal: unknown,
  text: { readonly source: string; readonly send: (source: string) => Promise<unknown> },
  whenFull: boolean = true,
): Promise<unknown> {
  const { source, send } = text;
  if (isUnknownScript(refusal))
    return send(source).catch((error) => resendRefused(error, text, whenFull));
  if (!whenFull || !isOutOfMemory(refusal)) throw refusal;
  return send(WHEN_FULL + source);
}

function isUnknownScript(error: unknown): boolean {
  return error instanceof Error && error.message.startsWith("NOSCRIPT");
}

function isOutOfMemory(error: unknown): boolean {
  return error instanceof Error && /^(-?OOM|ERR .*\bOOM) /.test(error.message);
}

/** True if a command runs a script by its digest. */
export function isScript({ name }: Pick<Command, "name">): boolean {
  return name === "evalsha";
}

/** Matches a script's error reply for a request that would also fail on another attempt. */
const SCRIPT_REFUSAL = /^SLUICE_(?<reason>[A-Z_]+) (?<detail>.*)$/;

/** Returns why a script refused a request. Undefined for any other error. */
export function refusalOf(
  error: unknown,
): { readonly reason: string; readonly detail: string } | undefined {
  const groups = error instanceof Error ? SCRIPT_REFUSAL.exec(error.message)?.groups : undefined;
  const { reason, detail } = groups ?? {};
  return reason === undefined || detail === undefined ? undefined : { reason, detail };
}
