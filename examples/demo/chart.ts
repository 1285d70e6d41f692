import type { Paint } from "./paint.ts";

export interface ChartOptions {
  /** One for each column; undefined where nothing is known yet. */
  readonly values: readonly (number | undefined)[];
  readonly height: number;
  /** What the full height stands for. */
  readonly top: number;
  readonly colour: (text: string) => string;
  /** Drawn as a line across the chart. */
  readonly cap?: { readonly at: number; readonly most: number };
  readonly paint: Paint;
}

const BLOCKS = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
const CAP_LINE = "▁";

/** A chart of bars, eight steps to a character; the lines come from the top down. */
export function drawChart({ values, height, top, colour, cap, paint }: ChartOptions): string[] {
  // The line lies on the lower edge of its row, so that bars that reach the cap just touch it.
  const capRow = cap === undefined ? -1 : Math.round((cap.at / top) * height);
  const lines: string[] = [];
  for (let row = height - 1; row >= 0; row--) {
    let line = "";
    for (const value of values) {
      const steps = Math.round(((value ?? 0) / top) * height * 8) - row * 8;
      const block = BLOCKS[Math.max(0, Math.min(8, steps))]!;
      const isOver = cap !== undefined && (value ?? 0) > cap.most;
      if (block !== " ") line += isOver ? paint.bad(block) : colour(block);
      else line += row === capRow ? paint.cap(CAP_LINE) : " ";
    }
    lines.push(line);
  }
  return lines;
}
