/**
 * Reads the options `key` and `keys`. `key` is a name or a path of names; `keys` are several keys side by side. Both
 * are encoded as one text.
 */
import * as z from "zod";
import { ignoreRejection, isThenable } from "../describe.ts";
import { InvalidOptionError } from "../errors.ts";
import {
  MOST_LEVELS,
  namedOf,
  encodeKey,
  textOfNamedKey,
  textOfNamedKeys,
  type Key,
  type NamedKeys,
} from "../key-path.ts";
import { KEY } from "./options.ts";

/** The options that identify the key of a call: either one key, or several keys side by side. */
export interface KeyGiven {
  /**
   * The key: a customer, an account or an endpoint, such as `"acme"`. Alternatively a path of up to three names, the
   * widest first: `["acme", "endpoint-7"]`.
   */
  readonly key?: Key | undefined;
  /**
   * Several keys side by side. Each key has its name in `perKey`: `{ address: "10.0.0.1", email: "a@b.c" }`. Cannot be
   * combined with `key`.
   */
  readonly keys?: NamedKeys | undefined;
}

/** The options after reading. `key` is the encoded text of either `key` or `keys`. */
export type KeyRead<Given> = Omit<Given, "key" | "keys"> & { readonly key?: string | undefined };

/**
 * The schema for the key of a call: a name or a path of names. Its output is the encoded text.
 *
 * @internal
 */
export const KEY_PATH: z.ZodType<string> = z
  .unknown()
  .transform((given, context) => readPath(given, context) ?? z.NEVER);

function readPath(given: unknown, context: z.RefinementCtx): string | undefined {
  if (!Array.isArray(given)) return readKeyName(given, context, []);
  const names: unknown[] = given.length > MOST_LEVELS ? [] : Array.from(given);
  if (names.length === 0) {
    const message = `give one to ${MOST_LEVELS} names, the widest first, such as ["acme", "endpoint-7"]`;
    return refuse(context, message, []);
  }
  const read = names.map((name, index) => readKeyName(name, context, [index]));
  return read.includes(undefined) ? undefined : encodeKey(read as string[]);
}

/**
 * The schema for several named keys side by side. Its output is the encoded text.
 *
 * @internal
 */
const NAMED_KEYS: z.ZodType<string> = z
  .unknown()
  .transform((given, context) => readNamedKeys(given, context) ?? z.NEVER);

function readNamedKeys(given: unknown, context: z.RefinementCtx): string | undefined {
  const isObject = typeof given === "object" && given !== null && !Array.isArray(given);
  const entries = isObject && !isThenable(given) ? Object.entries(given) : [];
  const named = entries.filter(([, value]) => value !== undefined);
  if (named.length === 0 || named.length > MOST_LEVELS) {
    const message = `give one to ${MOST_LEVELS} keys by the names that perKey has for them, such as { address: "10.0.0.1" }`;
    return refuse(context, message, []);
  }
  const read = named.map(([name, value]) => {
    const hasName = KEY.safeParse(name).success;
    if (!hasName) return refuse(context, "give each key a name that perKey has for it", [name]);
    const text = readKeyName(value, context, [name]);
    return text === undefined ? undefined : textOfNamedKey(name, text);
  });
  return read.includes(undefined) ? undefined : textOfNamedKeys(read as string[]);
}

function readKeyName(
  given: unknown,
  context: z.RefinementCtx,
  path: PropertyKey[],
): string | undefined {
  const read = KEY.safeParse(given);
  if (read.success) return read.data;
  ignoreRejection(given);
  const isWhole = path.length === 0 && typeof given !== "string";
  const message = isWhole
    ? 'give a string, or a list of them such as ["acme", "endpoint-7"]'
    : read.error.issues[0]!.message;
  return refuse(context, message, path);
}

function refuse(context: z.RefinementCtx, message: string, path: PropertyKey[]): undefined {
  context.addIssue({ code: "custom", message, path });
}

/** @internal */
export const KEY_SHAPE: {
  key: z.ZodOptional<z.ZodType<string>>;
  keys: z.ZodOptional<z.ZodType<string>>;
} = { key: KEY_PATH.optional(), keys: NAMED_KEYS.optional() };

/** A function that computes an option from the arguments of a call. */
export type ByCall = (...args: never[]) => unknown;

/**
 * The schemas for the key options of a wrapped function. Each option may be a function of the call's arguments.
 *
 * @internal
 */
export const KEY_BY_CALL_SHAPE: {
  key: z.ZodOptional<z.ZodType<string | ByCall>>;
  keys: z.ZodOptional<z.ZodType<string | ByCall>>;
} = { key: orFunction(readPath).optional(), keys: orFunction(readNamedKeys).optional() };

function orFunction(
  read: (given: unknown, context: z.RefinementCtx) => string | undefined,
): z.ZodType<string | ByCall> {
  return z
    .unknown()
    .transform((given, context) =>
      typeof given === "function" ? (given as ByCall) : (read(given, context) ?? z.NEVER),
    );
}

/**
 * Combines the options `key` and `keys` into one encoded key.
 *
 * @throws {@link InvalidOptionError} when both options are set.
 */
export function oneKey<Read extends { readonly key?: unknown; readonly keys?: string | undefined }>(
  where: string,
  read: Read,
): KeyRead<Read> {
  if (read.keys === undefined) return read as KeyRead<Read>;
  const { keys, ...others } = read;
  if (read.key === undefined) return Object.freeze({ ...others, key: keys }) as KeyRead<Read>;
  const remedy = "give either key or keys";
  const value = namedOf(keys).keys;
  throw new InvalidOptionError({ where, option: "keys", value, remedy });
}

/** Matches most key names quickly. Every match is a valid name. */
const PLAIN_NAME = /^[\w.:@/|+-]{1,256}$/;

/** Encodes a key that consists of plain names. Returns undefined for other keys, which need a full check. */
export function plainTextOfKey(given: unknown): string | undefined {
  if (typeof given === "string") return PLAIN_NAME.test(given) ? given : undefined;
  if (!Array.isArray(given) || given.length === 0 || given.length > MOST_LEVELS) return undefined;
  const names: unknown[] = Array.from(given);
  return names.every(isPlainName) ? encodeKey(names) : undefined;
}

/** Encodes named keys whose names and values are plain. Returns undefined for other keys, which need a full check. */
export function plainTextOfKeys(given: unknown): string | undefined {
  if (typeof given !== "object" || given === null) return undefined;
  if (Object.getPrototypeOf(given) !== Object.prototype) return undefined;
  const texts: string[] = [];
  for (const name in given) {
    const value: unknown = (given as Record<string, unknown>)[name];
    if (texts.length === MOST_LEVELS || !isPlainName(name) || !isPlainName(value)) return undefined;
    texts.push(textOfNamedKey(name, value));
  }
  return texts.length === 0 ? undefined : textOfNamedKeys(texts);
}

function isPlainName(given: unknown): given is string {
  return typeof given === "string" && PLAIN_NAME.test(given);
}
