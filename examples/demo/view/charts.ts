import type { Snapshot } from "./snapshot.ts";
import type { Paint } from "./terminal.ts";

export interface ChartOptions {
  /** One value per column; undefined for a column without a value yet. */
  readonly values: readonly (number | undefined)[];
  readonly height: number;
  /** The value that a bar of full height shows. */
  readonly top: number;
  readonly colour: (text: string) => string;
  /** The cap, drawn as a line across the chart. */
  readonly cap?: { readonly at: number; readonly most: number };
  readonly paint: Paint;
}

const BLOCKS = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
const CAP_LINE = "▁";

/** Draws a bar chart with eight steps per character. Returns its lines from the top down. */
export function drawChart({ values, height, top, colour, cap, paint }: ChartOptions): string[] {
  // Puts the cap line at the lower edge of its row, so that bars at the cap just touch it.
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

const PARTS = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/** Draws a horizontal bar with eight steps per character. */
export function drawBar(share: number, width: number): string {
  const steps = Math.round(share * width * 8);
  return "█".repeat(Math.floor(steps / 8)) + PARTS[steps % 8]!;
}

const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800];
const LEAST_GAP = 10;

/** Draws the time axis under a chart: `0 s       5 s       10 s`. */
export function timeAxis(seconds: number, columns: number): string {
  const step = STEPS_S.find((each) => (each / seconds) * columns >= LEAST_GAP) ?? seconds;
  let line = "";
  for (let second = 0; second <= seconds; second += step) {
    const label = `${second} s`;
    const column = Math.floor((second / seconds) * columns);
    if (column + label.length > columns) break;
    line = line.padEnd(column) + label;
  }
  return line;
}

/** The run so far, as one value per column of equal time. */
export interface History {
  add(snapshot: Snapshot): void;
  /** Returns, for each column, the calls in the busiest second that ended in it. */
  calls(columns: number): readonly (number | undefined)[];
  backlog(columns: number): readonly (number | undefined)[];
}

export function createHistory(lengthMs: number): History {
  const snapshots: Snapshot[] = [];

  function perColumn(columns: number, read: (snapshot: Snapshot) => number): number[] {
    const values: number[] = [];
    for (const snapshot of snapshots) {
      const column = Math.floor((snapshot.elapsedMs / lengthMs) * columns);
      if (column >= columns) break;
      // A column without a snapshot shows the value of the column before it.
      while (values.length < column) values.push(values.at(-1) ?? 0);
      values[column] = Math.max(values[column] ?? 0, read(snapshot));
    }
    return values;
  }

  function padded(values: readonly number[], columns: number): readonly (number | undefined)[] {
    return Array.from({ length: columns }, (_, column) => values[column]);
  }

  return {
    add: (snapshot) => void snapshots.push(snapshot),
    calls: (columns) =>
      padded(
        perColumn(columns, ({ callsInLastSecond }) => callsInLastSecond),
        columns,
      ),
    backlog: (columns) =>
      padded(
        perColumn(columns, ({ backlog }) => backlog),
        columns,
      ),
  };
}
