import { isDeepStrictEqual } from "node:util";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import { reasonOf } from "../../core/describe.ts";
import { InvalidOptionError } from "../../core/errors.ts";

/** Checks data: a schema of any library that implements Standard Schema, such as zod, valibot or arktype. */
export type Schema<Data, Input = unknown> = StandardSchemaV1<Input, Data>;

/** The default of `maxJobBytes`: the most bytes of JSON that a job's data may have. */
export const MAX_JOB_BYTES = 1_000_000;

/** How the data of a queue's jobs is checked. */
export interface DataRules<Data> {
  readonly schema?: Schema<Data> | undefined;
  /** The most bytes of JSON that the data of one job may have. */
  readonly maxJobBytes: number;
}

/** The answer of a schema. */
export type Checked<Data> =
  | { readonly isValid: true; readonly value: Data }
  | { readonly isValid: false; readonly path: string; readonly message: string };

export async function check<Data>(schema: Schema<Data>, value: unknown): Promise<Checked<Data>> {
  const result = await schema["~standard"].validate(value);
  if (result.issues === undefined) return { isValid: true, value: result.value };
  const [issue] = result.issues;
  const path = (issue?.path ?? []).map((part) => (typeof part === "object" ? part.key : part));
  return { isValid: false, path: path.map(String).join("."), message: issue?.message ?? "" };
}

/**
 * The data that is stored: what the queue's schema makes of the producer's.
 *
 * @throws {@link InvalidOptionError} when the schema refuses it, it is not JSON, or too large.
 */
export function readData<Data>(
  where: string,
  given: unknown,
  { schema, maxJobBytes }: DataRules<Data>,
): Data | Promise<Data> {
  if (schema !== undefined) return readBySchema(where, given, { schema, maxJobBytes });
  assertSize(where, { json: asJson(where, given), maxJobBytes, given });
  return given as Data;
}

async function readBySchema<Data>(
  where: string,
  given: unknown,
  { schema, maxJobBytes }: { readonly schema: Schema<Data>; readonly maxJobBytes: number },
): Promise<Data> {
  const checked = await checkGiven(where, schema, given);
  if (!checked.isValid) throw invalid(where, given, checked);
  const json = asJson(where, checked.value);
  assertSize(where, { json, maxJobBytes, given });
  const stored: unknown = JSON.parse(json);
  // The schema has accepted this very value already.
  if (!isDeepStrictEqual(stored, given)) await assertReadsBack(where, schema, stored);
  return checked.value;
}

/** Workers check the stored data again: a schema that refuses the JSON of its own output would fail every job there. */
async function assertReadsBack(
  where: string,
  schema: Schema<unknown>,
  value: unknown,
): Promise<void> {
  const checked = await checkGiven(where, schema, value);
  if (checked.isValid) return;
  const { path, message } = checked;
  const remedy = `the schema refuses the data as it is stored, as JSON (${message}); let it accept both`;
  throw new InvalidOptionError({ where, option: optionAt(path), value, remedy });
}

async function checkGiven<Data>(
  where: string,
  schema: Schema<Data>,
  value: unknown,
): Promise<Checked<Data>> {
  try {
    return await check(schema, value);
  } catch (cause) {
    const remedy = `the queue's schema threw (${reasonOf(cause)}); let it return issues instead`;
    throw new InvalidOptionError({ where, option: "data", value, remedy, cause });
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
 * The data as JSON. In it NaN is null and a Map is empty; to check for such losses would cost more than the rest.
 *
 * @throws {@link InvalidOptionError} for data that has no JSON.
 */
function asJson(where: string, data: unknown): string {
  let json: string | undefined;
  let cause: unknown;
  try {
    json = JSON.stringify(data) as string | undefined;
  } catch (error) {
    // A cycle, a BigInt, or a toJSON that throws.
    cause = error;
  }
  if (json !== undefined) return json;
  const why = cause === undefined ? "" : ` (${reasonOf(cause)})`;
  const remedy = `give data that JSON can hold${why}`;
  throw new InvalidOptionError({ where, option: "data", value: data, remedy, cause });
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
