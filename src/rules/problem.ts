import { describeValue, onOneLine } from "../core/describe.ts";
import { InvalidOptionError } from "../core/errors.ts";

export type Path = readonly (string | number)[];

export interface Problem {
  /** Where it stands: `["buckets", "api", "rate"]`. */
  readonly path: Path;
  readonly value: unknown;
  readonly remedy: string;
  /** Whether the name at the end of the path is meant, rather than its value. */
  readonly isOfName?: boolean | undefined;
}

/** The same, with its place in the file, counted from 1. */
export interface PlacedProblem extends Omit<Problem, "isOfName"> {
  readonly line: number;
  readonly column: number;
}

/** The path as people write it: `"buckets.api.limits[0].rate"`. */
function textOfPath(path: Path): string {
  const parts = path.map((part) => (typeof part === "number" ? `[${part}]` : `.${part}`));
  return parts.join("").replace(/^\./, "") || "the file";
}

/** `"/etc/sluice.yaml:3:11: buckets.api.rate is "50"; give a rate such as 100/s."` */
export function describeProblem(
  file: string,
  { path, value, remedy, line, column }: PlacedProblem,
): string {
  const end = /[.?!]$/.test(remedy) ? "" : ".";
  const what = value === undefined ? "" : ` is ${describeValue(value)}`;
  return onOneLine(`${file}:${line}:${column}: ${textOfPath(path)}${what}; ${remedy}${end}`);
}

/** The error of a file that cannot be used: it shows the first problem. */
export function errorOf(file: string, problems: readonly PlacedProblem[]): InvalidOptionError {
  const [{ path, value, remedy, line, column }, ...others] = problems as [
    PlacedProblem,
    ...PlacedProblem[],
  ];
  const more = others.length === 0 ? "" : ` (and ${others.length} more)`;
  const where = `${file}:${line}:${column}`;
  return new InvalidOptionError({ where, option: textOfPath(path), value, remedy: remedy + more });
}
