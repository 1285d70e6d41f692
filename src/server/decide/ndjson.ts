import { HttpProblem } from "../problem.ts";

/** The types of a body that has JSON on each line. */
export const NDJSON = ["application/x-ndjson", "application/jsonl"] as const;

const MOST_LINES = 10_000;

/**
 * What the lines say; empty ones are left out. `read` is what reads the body of other requests.
 *
 * @throws {@link HttpProblem} 400 when one is no JSON that is taken, and names it; 413 for too many.
 */
export function jobsOfLines(text: string, read: (line: string) => unknown): readonly unknown[] {
  // Files of Windows begin with a mark of their encoding.
  const lines = text.replace(/^\ufeff/, "").split("\n");
  if (lines.length > MOST_LINES + 1) {
    throw new HttpProblem(
      "ERR_BODY_TOO_LARGE",
      `There are more than ${MOST_LINES} lines; send them in parts.`,
    );
  }
  return lines.flatMap((line, index) => {
    if (line.trim() === "") return [];
    try {
      return [read(line)];
    } catch {
      const detail = `Line ${index + 1} is no JSON, or has a field such as __proto__; give one job on each line.`;
      throw new HttpProblem("ERR_BAD_REQUEST", detail);
    }
  });
}
