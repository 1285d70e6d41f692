import { describeValue, onOneLine } from "../core/describe.ts";
import { InvalidOptionError } from "../core/errors.ts";

export type Path = readonly (string | number)[];

export interface Problem {
  /** The path to the invalid value: `["buckets", "api", "rate"]`. */
  readonly path: Path;
  readonly value: unknown;
  readonly remedy: string;
  /** True if the problem concerns the last name in the path, not its value. */
  readonly isOfName?: boolean | undefined;
}

/** A problem with its position in the file, counted from 1. */
export interface PlacedProblem extends Omit<Problem, "isOfName"> {
  readonly line: number;
  readonly column: number;
}

/** Formats a path for people: `"buckets.api.limits[0].rate"`. */
function textOfPath(path: Path): string {
  const parts = path.map((part) => (typeof part === "number" ? `[${part}]` : `.${part}`));
  return parts.join("").replace(/^\./, "") || "the file";
}

/**
 * Formats a problem: `"/etc/sluice.yaml:3:11: buckets.api.rate is "50"; give a rate such as
 * 100/s."`
 */
export function describeProblem(
  file: string,
  { path, value, remedy, line, column }: PlacedProblem,
): string {
  const end = /[.?!]$/.test(remedy) ? "" : ".";
  const what = value === undefined ? "" : ` is ${describeValue(value)}`;
  return onOneLine(`${file}:${line}:${column}: ${textOfPath(path)}${what}; ${remedy}${end}`);
}

/**
 * Creates the error for an invalid rules file. The error shows the first problem and the number of
 * others.
 */
export function errorOf(file: string, problems: readonly PlacedProblem[]): InvalidOptionError {
  const [{ path, value, remedy, line, column }, ...others] = problems as [
    PlacedProblem,
    ...PlacedProblem[],
  ];
  const more = others.length === 0 ? "" : ` (and ${others.length} more)`;
  const where = `${file}:${line}:${column}`;
  return new InvalidOptionError({ where, option: textOfPath(path), value, remedy: remedy + more });
}
