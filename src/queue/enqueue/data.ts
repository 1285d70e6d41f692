import { isDeepStrictEqual } from "node:util";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import { reasonOf } from "../../core/describe.ts";
import { InvalidOptionError } from "../../core/errors.ts";

/** A schema for job data, from any library that implements Standard Schema, such as zod, valibot or arktype. */
export type Schema<Data, Input = unknown> = StandardSchemaV1<Input, Data>;

/** The default of `maxJobBytes`: the most bytes of JSON in a job's data. */
export const MAX_JOB_BYTES = 1_000_000;

/** The rules by which the data of a queue's jobs is checked. */
export interface DataRules<Data> {
  readonly schema?: Schema<Data> | undefined;
  /** The most bytes of JSON in one job's data. Infinity for a queue with codecs, which checks the encoded data. */
  readonly maxJobBytes: number;
}

/** The result of a schema's check. */
export type Checked<Data> =
  | { readonly isValid: true; readonly value: Data }
  | { readonly isValid: false; readonly path: string; readonly message: string };

/** Checks a value with a schema. Returns a promise only if the schema is asynchronous. */
export function check<Data>(
  schema: Schema<Data>,
  value: unknown,
): Checked<Data> | Promise<Checked<Data>> {
  return after(schema["~standard"].validate(value), asChecked);
}

function asChecked<Data>(result: StandardSchemaV1.Result<Data>): Checked<Data> {
  if (result.issues === undefined) return { isValid: true, value: result.value };
  const [issue] = result.issues;
  const path = (issue?.path ?? []).map((part) => (typeof part === "object" ? part.key : part));
  return { isValid: false, path: path.map(String).join("."), message: issue?.message ?? "" };
}

/**
 * Calls `goOn` at once if `from` is a value, or when the promise `from` is fulfilled. For a value, the call is
 * synchronous, because a job's data must be read before `enqueue` returns.
 */
function after<From, To>(
  from: From | PromiseLike<From>,
  goOn: (value: From) => To | Promise<To>,
): To | Promise<To> {
  return isPromise(from) ? Promise.resolve(from).then(goOn) : goOn(from);
}

function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === "function";
}

/** A job's data as it was when `enqueue` was called. Later changes by the producer have no effect. */
export interface TakenData<Data> {
  /** The JSON to store. */
  readonly json: string;
  readonly value: Data;
}

/**
 * Checks data with the queue's schema, and returns the JSON to store. An asynchronous schema checks a copy of the data,
 * because the producer may change the original.
 *
 * @throws {@link InvalidOptionError} when the schema rejects the data, or the data is not JSON or is too large.
 */
export function takeData<Data>(
  where: string,
  given: unknown,
  rules: DataRules<Data>,
): TakenData<Data> | Promise<TakenData<Data>> {
  if (rules.schema === undefined) {
    const json = asJson(where, given);
    assertSize(where, { json, maxJobBytes: rules.maxJobBytes, given });
    return { json, value: copyOf(where, given) as Data };
  }
  return checkCopy(where, copyOf(where, given), rules);
}

/** Like {@link takeData}, for data that is already a copy. */
export function checkCopy<Data>(
  where: string,
  given: unknown,
  { schema, maxJobBytes }: DataRules<Data>,
): TakenData<Data> | Promise<TakenData<Data>> {
  return after(checkGiven(where, schema!, given), (checked) => {
    if (!checked.isValid) throw invalid(where, given, checked);
    const { value } = checked;
    const json = asJson(where, value);
    assertSize(where, { json, maxJobBytes, given });
    const stored: unknown = JSON.parse(json);
    // The schema has already accepted this exact value.
    if (isDeepStrictEqual(stored, given)) return { json, value };
    return after(checkGiven(where, schema!, stored), (again) => {
      assertReadsBack(where, again, stored);
      return { json, value };
    });
  });
}

/**
 * Copies plain objects, arrays and dates at any depth. Other objects are not copied, because a copy of a class instance
 * may not work. `structuredClone` would take nine times as long, and rejects functions. To keep cycles, only the
 * objects that contain the current object are remembered. Remembering every object would take six times as long.
 *
 * @throws {@link InvalidOptionError} for data that cannot be read completely.
 */
export function copyOf(where: string, given: unknown): unknown {
  if (!isObject(given)) return given;
  try {
    return copyDeep(given, { originals: [], copies: [] });
  } catch (cause) {
    throw noJson(where, given, cause);
  }
}

/** The objects that contain the current object, the outermost first, and their copies. */
interface Around {
  readonly originals: object[];
  readonly copies: object[];
}

function copyDeep(given: object, around: Around): object {
  const at = around.originals.indexOf(given);
  if (at !== -1) return around.copies[at]!;
  if (given instanceof Date) return new Date(given);
  const copy: unknown = Array.isArray(given) ? given.slice() : isPlain(given) && { ...given };
  if (!isObject(copy)) return given;
  around.originals.push(given);
  around.copies.push(copy);
  if (Array.isArray(copy)) {
    for (let index = 0; index < copy.length; index++) {
      const value: unknown = copy[index];
      if (isObject(value)) copy[index] = copyDeep(value, around);
    }
  } else copyFields(copy as Record<string, unknown>, around);
  around.originals.pop();
  around.copies.pop();
  return copy;
}

function copyFields(copy: Record<string, unknown>, around: Around): void {
  // Assigning to a property named `__proto__` is safe here, because it is already the copy's own property.
  for (const name of Object.keys(copy)) {
    const value = copy[name];
    if (isObject(value)) copy[name] = copyDeep(value, around);
  }
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  // This check also accepts plain objects from another realm.
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/**
 * Rejects a job if the schema does not accept the JSON of its own output. Workers check the stored data again, so every
 * such job would fail there.
 */
function assertReadsBack(where: string, checked: Checked<unknown>, value: unknown): void {
  if (checked.isValid) return;
  const { path, message } = checked;
  const remedy = `the schema refuses the data as it is stored, as JSON (${message}); let it accept both`;
  throw new InvalidOptionError({ where, option: optionAt(path), value, remedy });
}

function checkGiven<Data>(
  where: string,
  schema: Schema<Data>,
  value: unknown,
): Checked<Data> | Promise<Checked<Data>> {
  const refuse = (cause: unknown): never => {
    const remedy = `the queue's schema threw (${reasonOf(cause)}); let it return issues instead`;
    throw new InvalidOptionError({ where, option: "data", value, remedy, cause });
  };
  try {
    const checking = check(schema, value);
    return isPromise(checking) ? checking.catch(refuse) : checking;
  } catch (cause) {
    return refuse(cause);
  }
}

function invalid(
  where: string,
  given: unknown,
  { path, message }: { readonly path: string; readonly message: string },
): InvalidOptionError {
  let value = given;
  for (const name of path === "" ? [] : path.split(".")) {
    value = (value as Record<string, unknown> | null | undefined)?.[name];
  }
  // The message comes from the schema's library, and may end with a full stop.
  const remedy = message.replace(/\.$/, "");
  return new InvalidOptionError({ where, option: optionAt(path), value, remedy });
}

function optionAt(path: string): string {
  return path === "" ? "data" : `data.${path}`;
}

/**
 * Returns the data as JSON. Some values are lost without an error: NaN becomes null, and a Map becomes empty. Checking
 * for such losses would cost more than the rest of this work.
 *
 * @throws {@link InvalidOptionError} when the data cannot be written as JSON.
 */
export function asJson(where: string, data: unknown): string {
  let json: string | undefined;
  let cause: unknown;
  try {
    // The caller forgot to await a promise, which would be stored as `{}`.
    if (isPromise(data)) throw new TypeError("it is a promise; await it first");
    json = JSON.stringify(data) as string | undefined;
  } catch (error) {
    // The data has a cycle, a BigInt, or a `toJSON` that throws.
    cause = error;
  }
  if (json !== undefined) return json;
  throw noJson(where, data, cause);
}

function noJson(where: string, value: unknown, cause: unknown): InvalidOptionError {
  const why = cause === undefined ? "" : ` (${reasonOf(cause)})`;
  const remedy = `give data that JSON can hold${why}`;
  return new InvalidOptionError({ where, option: "data", value, remedy, cause });
}

/** @throws {@link InvalidOptionError} when the JSON to store has more bytes than the queue allows. */
export function assertSize(
  where: string,
  { json, maxJobBytes, given }: { json: string; maxJobBytes: number; given: unknown },
): void {
  // Avoids counting the bytes of small data: each UTF-16 unit becomes at most three bytes of UTF-8.
  if (json.length * 3 <= maxJobBytes) return;
  const bytes = Buffer.byteLength(json);
  if (bytes <= maxJobBytes) return;
  const remedy =
    `it has ${bytes} bytes of JSON, and at most ${maxJobBytes} are allowed; ` +
    `store the bulk elsewhere and enqueue its address, or raise the queue's maxJobBytes`;
  throw new InvalidOptionError({ where, option: "data", value: given, remedy });
}
