/** Decides which events an endpoint receives, by their type and data. */
import * as z from "zod";

/**
 * Conditions on the event data, by the path of a field: `{ "customer.country": { in: ["DE", "AT"] }
 * }`. An event must meet all conditions.
 */
export type Filter = Readonly<Record<string, Condition>>;

/** A condition on one field: one or more operators. The field must meet all operators. */
export interface Condition {
  /** The field equals this value. */
  readonly eq?: Scalar | undefined;
  /** The field has another value, or is missing. */
  readonly ne?: Scalar | undefined;
  /** The field equals one of these values. */
  readonly in?: readonly Scalar[] | undefined;
  /** The field is a number or text greater than this. */
  readonly gt?: number | string | undefined;
  /** The field is a number or text less than this. */
  readonly lt?: number | string | undefined;
  /** Whether the field must exist (true) or must be missing (false). */
  readonly exists?: boolean | undefined;
}

type Scalar = string | number | boolean | null;

const MOST_TYPES = 100;
const MOST_CONDITIONS = 20;
const PATTERN = /^(?:\*|[a-zA-Z0-9_]+(?:\.[a-zA-Z0-9_]+)*(?:\.\*)?)$/;
const PATTERN_REMEDY = 'give types such as "invoice.paid", or "invoice.*" for all that begin so';
const PATH = /^[^.\p{Cc}]{1,100}(?:\.[^.\p{Cc}]{1,100}){0,9}$/u;
const SCALAR = z.union([z.string().max(1_000), z.number(), z.boolean(), z.null()], {
  error: "give a text, a number, true, false or null",
});
const ORDERED = z.union([z.string().max(1_000), z.number()], { error: "give a number or a text" });

/** @internal */
export const TYPES: z.ZodType<readonly string[]> = z
  .array(z.string({ error: PATTERN_REMEDY }).max(128).regex(PATTERN, { error: PATTERN_REMEDY }), {
    error: PATTERN_REMEDY,
  })
  .min(1, { error: "give at least one type, or omit types for all" })
  .max(MOST_TYPES, { error: `give at most ${MOST_TYPES} types` });

const VALUES = "give a list of 1 to 100 values";
const CONDITION = z
  .strictObject({
    eq: SCALAR.optional(),
    ne: SCALAR.optional(),
    in: z
      .array(SCALAR, { error: VALUES })
      .min(1, { error: VALUES })
      .max(100, { error: VALUES })
      .optional(),
    gt: ORDERED.optional(),
    lt: ORDERED.optional(),
    exists: z.boolean({ error: "give true or false" }).optional(),
  })
  .refine((condition) => Object.values(condition).some((value) => value !== undefined), {
    error: "give one of eq, ne, in, gt, lt and exists",
  });

/** @internal */
export const FILTER: z.ZodType<Filter> = z
  .record(z.string().regex(PATH, { error: 'give paths such as "customer.country"' }), CONDITION, {
    error: 'give conditions by paths, such as { "amount": { gt: 100 } }',
  })
  .refine((filter) => Object.keys(filter).length <= MOST_CONDITIONS, {
    error: `give at most ${MOST_CONDITIONS} paths`,
  });

/** True if one of the patterns matches the type, or there are no patterns. */
export function matchesType(patterns: readonly string[] | undefined, type: string): boolean {
  if (patterns === undefined) return true;
  return patterns.some(
    (pattern) =>
      pattern === type ||
      pattern === "*" ||
      (pattern.endsWith(".*") && type.startsWith(pattern.slice(0, -1))),
  );
}

export function matchesFilter(filter: Filter | undefined, data: unknown): boolean {
  if (filter === undefined) return true;
  return Object.entries(filter).every(([path, condition]) => holds(condition, valueAt(data, path)));
}

function holds({ eq, ne, in: among, gt, lt, exists }: Condition, value: unknown): boolean {
  return (
    (eq === undefined || value === eq) &&
    (ne === undefined || value !== ne) &&
    (among === undefined || among.includes(value as Scalar)) &&
    (gt === undefined || isAbove(value, gt)) &&
    (lt === undefined || isAbove(lt, value)) &&
    (exists === undefined || (value !== undefined) === exists)
  );
}

/** Compares values of the same type only: `"10" > 9` is never true. */
function isAbove(one: unknown, other: unknown): boolean {
  if (typeof one === "number" && typeof other === "number") return one > other;
  return typeof one === "string" && typeof other === "string" && one > other;
}

/** Reads only own properties, so that `constructor.name` finds nothing. */
function valueAt(data: unknown, path: string): unknown {
  let value = data;
  for (const name of path.split(".")) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, name))
      return undefined;
    value = (value as Record<string, unknown>)[name];
  }
  return value;
}
