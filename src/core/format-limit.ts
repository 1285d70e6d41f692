import type { Limit } from "./limits/limit.ts";
import { formatPeriod, formatRate } from "./rate.ts";

/** A limit as errors, headers and `peek` name it: `"100/s"`, `"90000/min tokens"`, `"25 at once"`. */
export function formatLimit(limit: Limit): string {
  const unit = limit.unit === "calls" ? "" : ` ${limit.unit}`;
  return `${amount(limit)}${unit}`;
}

function amount(limit: Limit): string {
  const { kind, count, periodUs, capacity } = limit;
  switch (kind) {
    case "concurrency":
      return `${count} at once`;
    case "leaky-bucket":
      return capacity === 1
        ? formatRate(limit)
        : `${formatRate(limit)} with a burst of ${capacity}`;
    case "token-bucket":
      return `${capacity} at once, refilled at ${formatRate(limit)}`;
    case "fixed-window":
      return `${count} each ${formatPeriod(periodUs)}`;
    default:
      return `${count} in any ${formatPeriod(periodUs)}`;
  }
}
