import type { Paint } from "./view/terminal.ts";

/** What a run came to. */
export interface Figures {
  readonly jobs: number;
  readonly delivered: number;
  readonly waiting: number;
  /** Given up by their worker after their last try. */
  readonly failed: number;
  readonly twice: number;
  readonly worstSecond: number;
  /** The same, less what the downstream may have seen late, having stood still itself in that second. */
  readonly surelyInWorstSecond: number;
  readonly refused: number;
  /** The longest that the downstream's own process stood still: it sees the calls of that time together. */
  readonly stalledMs: number;
  /** Of the cap, while work waited; undefined when it did so for less than a second. */
  readonly share: number | undefined;
  readonly crashedWorkers: number;
}

/** One line of the result. */
export interface Row {
  readonly name: string;
  readonly value: string;
  /** What was promised of it. */
  readonly promise?: string;
  readonly isBroken?: boolean;
}

const LEAST_SHARE = 0.98;

/** The calls that the worst second may see: 1.01 × the cap, rounded up. */
export function mostPerSecond(rate: number): number {
  // Not rate × 1.01, which as a double can lie above the whole number it should be.
  return Math.ceil((rate * 101) / 100);
}

/** Compares what was seen with what is promised. */
export function judge(rate: number, figures: Figures): readonly Row[] {
  const { jobs, delivered, waiting, failed, twice, worstSecond, refused, share } = figures;
  // A worker that died after a delivery leaves its job in the queue: it is counted on both sides.
  const lost = Math.max(0, jobs - delivered - waiting - failed);
  const most = mostPerSecond(rate);
  const isBroken = figures.surelyInWorstSecond > most;
  // What came while the downstream stood still may be of the second before.
  const isLate = worstSecond > most && !isBroken;
  const died = figures.crashedWorkers > 0;
  return [
    { name: "jobs", value: count(jobs) },
    { name: "delivered", value: count(delivered) },
    { name: "still waiting", value: count(waiting) },
    ...(failed > 0 ? [{ name: "given up", value: count(failed), isBroken: true }] : []),
    { name: "lost", value: count(lost), promise: "0", isBroken: lost > 0 },
    {
      name: "twice",
      value: count(twice),
      promise: died ? "0, but for calls of a worker that died" : "0",
      isBroken: twice > 0 && !died,
    },
    {
      name: "worst second",
      value: count(worstSecond),
      promise: `at most ${count(most)} calls${isLate ? ", but for what was seen late" : ""}`,
      isBroken,
    },
    {
      name: "worst second, of the cap",
      value: (worstSecond / rate).toFixed(3),
      promise: `at most 1.01, in whole calls${isLate ? ", but for the same" : ""}`,
      isBroken,
    },
    {
      name: "share of the cap used",
      value: share === undefined ? "–" : share.toFixed(3),
      ...(share === undefined ? {} : judgeShare(share)),
    },
    { name: "429 answers", value: count(refused), promise: "0", isBroken: refused > 0 },
    { name: "downstream stood still", value: `${Math.ceil(figures.stalledMs)} ms` },
  ];
}

function judgeShare(share: number): Pick<Row, "promise" | "isBroken"> {
  return { promise: `at least ${LEAST_SHARE} while work waits`, isBroken: share < LEAST_SHARE };
}

export function count(value: number): string {
  return value.toLocaleString("en-US");
}

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
