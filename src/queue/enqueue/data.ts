import { isDeepStrictEqual } from "node:util";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import { reasonOf } from "../../core/describe.ts";
import { InvalidOptionError } from "../../core/errors.ts";

/** Checks data, with a schema of any library that implements Standard Schema, such as zod, valibot or arktype. */
export type Schema<Data, Input = unknown> = StandardSchemaV1<Input, Data>;

/** The default of `maxJobBytes`: the most bytes of JSON in a job's data. */
export const MAX_JOB_BYTES = 1_000_000;

/** How the data of a queue's jobs is checked. */
export interface DataRules<Data> {
  readonly schema?: Schema<Data> | undefined;
  /** The most bytes of JSON in one job's data. */
  readonly maxJobBytes: number;
}

/** The result of a schema's check. */
export type Checked<Data> =
  | { readonly isValid: true; readonly value: Data }
  | { readonly isValid: false; readonly path: string; readonly message: string };

/** Returns a promise only if the schema is asynchronous. */
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
 * Calls `goOn` at once, or once a promise is fulfilled. It is not deferred further, because data is taken as it is when
 * `enqueue` is called.
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

/** A job's data as it was at the call, whatever the producer changes afterwards. */
export interface TakenData<Data> {
  /** The JSON to store. */
  readonly json: string;
  readonly value: Data;
}

/**
 * Takes the data to store, after the queue's schema: at once, or from a copy if the schema is asynchronous.
 *
 * @throws {@link InvalidOptionError} when the schema refuses it, it is not JSON, or it is too large.
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

/** The same for a copy of the producer's data. */
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
 * Copies plain objects, arrays and dates, however deep. Other objects are not copied, because a copy of a class
 * instance may not work. `structuredClone` takes nine times as long, and refuses functions. To remember each object
 * takes six times as long, so only the objects around the current one are remembered: a cycle stays a cycle.
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

/** The objects around the current one, the outermost first. */
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
  // A property named `__proto__` already belongs to the copy itself.
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
  // This is also true of plain objects from another realm.
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** Workers check the stored data again. A schema that refuses the JSON of its own output would fail every job there. */
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
  // The message is the library's, and may end with a full stop.
  const remedy = message.replace(/\.$/, "");
  return new InvalidOptionError({ where, option: optionAt(path), value, remedy });
}

function optionAt(path: string): string {
  return path === "" ? "data" : `data.${path}`;
}

/**
 * Returns the data as JSON. In it, NaN is null and a Map is empty: checking for such losses would cost more than all
 * the rest.
 *
 * @throws {@link InvalidOptionError} for data that has no JSON.
 */
export function asJson(where: string, data: unknown): string {
  let json: string | undefined;
  let cause: unknown;
  try {
    // A promise would be stored as `{}`, because the caller forgot to await it.
    if (isPromise(data)) throw new TypeError("it is a promise; await it first");
    json = JSON.stringify(data) as string | undefined;
  } catch (error) {
    // A cycle, a BigInt, or a toJSON that throws.
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

function assertSize(
  where: string,
  { json, maxJobBytes, given }: { json: string; maxJobBytes: number; given: unknown },
): void {
  // A UTF-16 unit has at most three bytes of UTF-8.
  if (json.length * 3 <= maxJobBytes) return;
  const bytes = Buffer.byteLength(json);
  if (bytes <= maxJobBytes) return;
  const remedy =
    `it has ${bytes} bytes of JSON, and at most ${maxJobBytes} are allowed; ` +
    `store the bulk elsewhere and enqueue its address, or raise the queue's maxJobBytes`;
  throw new InvalidOptionError({ where, option: "data", value: given, remedy });
}
