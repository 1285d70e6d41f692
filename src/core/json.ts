/** What JSON says of values that it has no form for. */
import { describeValue } from "./describe.ts";

/** What JSON says of a time without an end; it has no Infinity, and would say `null`. */
const FOREVER = "forever";

/**
 * Makes JSON say `"forever"` of each time of a result that has no end. In the process it stays Infinity, which is
 * compared like any other time.
 */
export function sayEndless<Result extends object>(result: Result): Result {
  if (!Object.values(result).includes(Infinity)) return result;
  const toJSON = (): object => {
    const said = Object.entries(result).map(([name, value]: [string, unknown]) => [
      name,
      value === Infinity ? FOREVER : value,
    ]);
    return Object.fromEntries(said) as object;
  };
  // Not enumerable: it is no field of the result.
  return Object.defineProperty(result, "toJSON", { value: toJSON });
}

/** A fact of an error as JSON can hold it: no error may fail as it is logged. */
export function factInJson(name: string, value: unknown): unknown {
  if (typeof value === "number" && !Number.isFinite(value)) {
    return value === Infinity && name.endsWith("Ms") ? FOREVER : String(value);
  }
  if (typeof value === "bigint" || typeof value === "function" || typeof value === "symbol") {
    return describeValue(value);
  }
  if (typeof value !== "object" || value === null) return value;
  try {
    JSON.stringify(value);
    return value;
  } catch {
    // A cycle, a BigInt, or a toJSON that throws.
    return describeValue(value);
  }
}
