import type { Paint } from "./paint.ts";
import type { Row } from "./verdict.ts";

/** The result as lines of text: what was measured, and whether it is what was promised. */
export function resultTable(rows: readonly Row[], paint: Paint): string[] {
  const nameWidth = Math.max(...rows.map(({ name }) => name.length));
  const valueWidth = Math.max(...rows.map(({ value }) => value.length));
  const rule = paint.faint("─".repeat(nameWidth + valueWidth + 36));
  const lines = rows.map(({ name, value, promise, isBroken }) => {
    const figure = `${name.padEnd(nameWidth)}  ${paint.strong(value.padStart(valueWidth))}`;
    if (isBroken === undefined) return figure;
    const mark = isBroken ? paint.bad("✗") : paint.good("✓");
    return `${figure}  ${mark} ${paint.faint(promise ?? "")}`;
  });
  const head = `${" ".repeat(nameWidth)}  ${"seen".padStart(valueWidth)}    promised`;
  return [rule, paint.faint(head), ...lines, rule];
}
