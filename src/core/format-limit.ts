import type { Limit } from "./limits/limit.ts";
import { ruleOf } from "./limits/registry.ts";

/** A limit as errors, headers and `peek` name it: `"100/s"`, `"90000/min tokens"`, `"25 at once"`. */
export function formatLimit(limit: Limit): string {
  const unit = limit.unit === "calls" ? "" : ` ${limit.unit}`;
  return `${ruleOf(limit.kind).format(limit)}${unit}`;
}
