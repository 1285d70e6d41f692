import type { Figures } from "../support/docs/report-figures.ts";
import type { FileReport } from "./read-round.ts";

/** The figures with a column of their own, and the column's title. */
const COLUMNS = {
  recoveryMs: "recovery, ms",
  extra: "extra",
  wasted: "wasted",
  lost: "lost",
  again: "again",
} as const;
const NONE = "–";

/**
 * Formats the reports of several rounds as a markdown table: a line for each fault, sorted by test, with the range of
 * each figure.
 */
export function summarize(rounds: readonly (readonly FileReport[])[]): string {
  const seenOf = new Map<string, Figures[]>();
  for (const { file, fault, figures } of rounds.flat()) {
    const name = JSON.stringify([file, fault]);
    seenOf.set(name, [...(seenOf.get(name) ?? []), figures]);
  }
  const rows = [...seenOf].map(([name, seen]) => {
    const [file, fault] = JSON.parse(name) as [string, string];
    return [fault, ...cellsOf(seen), `\`${file}\``];
  });
  const head = ["fault", ...Object.values(COLUMNS), "also", "test"];
  const rule = head.map(() => "---");
  const sorted = rows.toSorted((a, b) => a.at(-1)!.localeCompare(b.at(-1)!));
  return [head, rule, ...sorted].map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

function cellsOf(seen: readonly Figures[]): string[] {
  const rangeOf = (words: string): string | undefined => {
    const values = seen.flatMap((figures) => figures[words] ?? []);
    return values.length === 0 ? undefined : formatRange(values);
  };
  const words = [...new Set(seen.flatMap((figures) => Object.keys(figures)))];
  const others = words.filter((each) => !Object.hasOwn(COLUMNS, each));
  return [
    ...Object.keys(COLUMNS).map((column) => rangeOf(column) ?? NONE),
    others.map((each) => `${each}: ${rangeOf(each)}`).join("; ") || NONE,
  ];
}

function formatRange(values: readonly number[]): string {
  const [least, most] = [Math.min(...values), Math.max(...values)].map(format);
  return least === most ? least! : `${least} to ${most}`;
}

/** Formats small numbers with two decimals, and others with none. */
function format(value: number): string {
  return String(Math.abs(value) < 10 ? Number(value.toFixed(2)) : Math.round(value));
}
