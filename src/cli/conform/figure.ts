/** A promised lower or upper bound. */
export type Bound = { readonly atLeast: number } | { readonly atMost: number };

/** One measured number of a scenario, with its bound. */
export interface Figure {
  readonly figure: string;
  readonly bound: Bound;
  /** Undefined if it never happened, such as a recovery. */
  readonly value: number | undefined;
  /** The decimals to show. Defaults to 0. */
  readonly digits?: number;
}

export function isKept({ bound, value }: Pick<Figure, "bound" | "value">): boolean {
  return value !== undefined && isWithin(bound, value);
}

export function isWithin(bound: Bound, value: number): boolean {
  return "atLeast" in bound ? value >= bound.atLeast : value <= bound.atMost;
}

export function formatBound(bound: Bound): string {
  return "atLeast" in bound
    ? `≥ ${formatNumber(bound.atLeast)}`
    : `≤ ${formatNumber(bound.atMost)}`;
}

export function formatValue({ value, digits = 0 }: Figure): string {
  return value === undefined ? "never" : formatNumber(value, digits);
}

/** Formats `1234567.8` as `1,234,568`, because separated thousands make large figures easy to compare. */
export function formatNumber(value: number, digits?: number): string {
  if (Number.isNaN(value)) return "–";
  const fraction = digits === undefined ? {} : { minimumFractionDigits: digits };
  // Adding 0 turns -0 into 0, because a table should not show "-0" either.
  return (value + 0).toLocaleString("en-US", { maximumFractionDigits: digits ?? 3, ...fraction });
}
