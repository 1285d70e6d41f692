import { HttpProblem } from "../problem.ts";

/** The types of a body that has JSON on each line. */
export const NDJSON = ["application/x-ndjson", "application/jsonl"] as const;

const MOST_LINES = 10_000;

/**
 * What the lines say; empty ones are left out.
 *
 * @throws {@link HttpProblem} 400 when one is no JSON, and names it; 413 for too many.
 */
export function jobsOfLines(text: string): readonly unknown[] {
  // Files of Windows begin with a mark of their encoding.
  const lines = text.replace(/^\ufeff/, "").split("\n");
  if (lines.length > MOST_LINES + 1) {
    throw new HttpProblem(413, `There are more than ${MOST_LINES} lines; send them in parts.`);
  }
  return lines.flatMap((line, index) => {
    if (line.trim() === "") return [];
    try {
      return [JSON.parse(line) as unknown];
    } catch {
      throw new HttpProblem(400, `Line ${index + 1} is no JSON; give one job on each line.`);
    }
  });
}
