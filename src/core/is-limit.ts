import { mostOf } from "./limit-makers.ts";
import type { Limit } from "./limits/limit.ts";
import { RULES } from "./limits/registry.ts";
import { UNIT } from "./options.ts";
import { isAlign } from "./resets.ts";

const NAMES = new Set(["kind", "unit", "count", "periodUs", "capacity", "align"]);

/** Whether a value is a limit that one of the makers could have made; other replicas' come by way of Redis. */
export function isLimit(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  const { kind, unit, count, periodUs, capacity, align } = value as Partial<Limit>;
  const numbers = [count, periodUs, capacity];
  const areWhole = numbers.every((each) => Number.isSafeInteger(each) && each! > 0);
  const isKnown = RULES.has(kind as string) && UNIT.safeParse(unit).success;
  if (!isKnown || !areWhole || (align !== undefined && !isAlign(align))) return false;
  if (!Object.keys(value).every((name) => NAMES.has(name))) return false;
  return capacity! <= mostOf({ kind: kind!, count: count!, periodUs: periodUs! });
}
