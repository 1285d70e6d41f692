import { wasBusy, type MachineLoad } from "./machine.ts";
import type { Paint } from "./view/terminal.ts";

/** The results of a run. */
export interface Figures {
  readonly jobs: number;
  readonly delivered: number;
  readonly waiting: number;
  /** Jobs whose last attempt failed. */
  readonly failed: number;
  readonly twice: number;
  readonly worstSecond: number;
  /** The calls in the worst second, without calls that were late because a worker or the downstream was blocked. */
  readonly surelyInWorstSecond: number;
  readonly refused: number;
  /** Calls with an invalid signature. */
  readonly unverified: number;
  /** Webhooks that got the response 503, and then those of them that were retried and accepted. */
  readonly failedOnce: number;
  readonly cameAgain: number;
  /** The customers whose endpoints have separate limits. */
  readonly paced: readonly PacedCustomer[];
  /** The longest time for which the downstream's process was blocked. It sees all calls of that time together. */
  readonly stalledMs: number;
  /** The longest time for which a worker process was blocked. It sends all calls of that time together. */
  readonly workersStalledMs: number;
  /** The share of the cap that was used while webhooks waited; undefined if they waited for less than a second. */
  readonly share: number | undefined;
  readonly crashedWorkers: number;
  readonly machine: MachineLoad;
}

export interface PacedCustomer {
  readonly tenant: string;
  /** The rate of the customer's endpoint, in calls a second. */
  readonly perSecond: number;
  readonly worstSecond: number;
  readonly surelyInWorstSecond: number;
}

/** One row of the result table. */
export interface Row {
  readonly name: string;
  readonly value: string;
  /** What Sluice promises for this figure. */
  readonly promise?: string;
  readonly isBroken?: boolean;
  /** True if the machine was too busy for this figure to be conclusive. Then `isBroken` is false. */
  readonly isInconclusive?: boolean;
}

const LEAST_SHARE = 0.98;

/** The most calls allowed in the worst second: 1.01 × the cap, rounded up. */
export function mostPerSecond(rate: number): number {
  // Avoids rate × 1.01, because as a double the product can exceed the whole number that it should be.
  return Math.ceil((rate * 101) / 100);
}

/** Compares the figures with what Sluice promises. */
export function judge(rate: number, figures: Figures): readonly Row[] {
  const { jobs, delivered, waiting, failed, twice, worstSecond, refused, share, machine } = figures;
  // If a worker dies after a delivery, its job stays in the queue and counts as both delivered and waiting.
  const lost = Math.max(0, jobs - delivered - waiting - failed);
  const most = mostPerSecond(rate);
  const isBroken = figures.surelyInWorstSecond > most;
  // Calls that arrive after a process was blocked may belong to the second before.
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
      promise: died ? "0, except calls of a worker that died" : "0",
      isBroken: twice > 0 && !died,
    },
    {
      name: "worst second",
      value: count(worstSecond) + lateText(figures),
      ...judgeTiming(
        isBroken,
        `at most ${count(most)} calls${isLate ? ", except late ones" : ""}`,
        machine,
      ),
    },
    {
      name: "worst second, of the cap",
      value: (worstSecond / rate).toFixed(3) + lateText(figures),
      ...judgeTiming(
        isBroken,
        `at most 1.01, in whole calls${isLate ? ", with the same exception" : ""}`,
        machine,
      ),
    },
    {
      name: "share of the cap used",
      value: share === undefined ? "–" : share.toFixed(3),
      ...(share === undefined
        ? {}
        : judgeTiming(share < LEAST_SHARE, `at least ${LEAST_SHARE} while work waits`, machine)),
    },
    ...figures.paced.map((each) => judgePaced(each, machine)),
    {
      name: "signatures that do not fit",
      value: count(figures.unverified),
      promise: "0, by the verifier of Standard Webhooks",
      isBroken: figures.unverified > 0,
    },
    {
      name: "answered 503, sent again",
      value: count(figures.cameAgain),
      promise: `${count(figures.failedOnce)}, unless it still waits`,
      isBroken: figures.cameAgain < figures.failedOnce && waiting === 0,
    },
    {
      name: "429 answers",
      value: count(refused),
      // The downstream also rejects late calls, because it cannot know that a worker was blocked.
      ...judgeTiming(refused > 0 && !isLate, isLate ? "0, except for late calls" : "0", machine),
    },
    { name: "downstream stood still", value: `${Math.ceil(figures.stalledMs)} ms` },
    { name: "workers stood still", value: `${Math.ceil(figures.workersStalledMs)} ms` },
    { name: "machine stood still", value: `${Math.ceil(figures.machine.stoodStillMs)} ms in all` },
    { name: "idle processors", value: `${Math.round(figures.machine.idleShare * 100)} %` },
  ];
}

function judgePaced({ tenant, perSecond, ...pace }: PacedCustomer, machine: MachineLoad): Row {
  const most = mostPerSecond(perSecond);
  const isBroken = pace.surelyInWorstSecond > most;
  const isLate = pace.worstSecond > most && !isBroken;
  return {
    name: `worst second of ${tenant}`,
    value: count(pace.worstSecond) + lateText(pace),
    ...judgeTiming(
      isBroken,
      `at most ${count(most)} calls${isLate ? ", except late ones" : ""}`,
      machine,
    ),
  };
}

/** Says how many calls of the worst second may belong to the second before: `" (1 late)"`. */
function lateText({
  worstSecond,
  surelyInWorstSecond,
}: Pick<Figures, "worstSecond" | "surelyInWorstSecond">): string {
  const late = worstSecond - surelyInWorstSecond;
  return late > 0 ? ` (${count(late)} late)` : "";
}

/**
 * Marks a missed timing figure as inconclusive if the machine was too busy, because it then says nothing about
 * Sluice.
 */
function judgeTiming(
  isMissed: boolean,
  promise: string,
  machine: MachineLoad,
): Pick<Row, "promise" | "isBroken" | "isInconclusive"> {
  if (!isMissed) return { promise, isBroken: false };
  const isInconclusive = wasBusy(machine);
  return {
    promise: isInconclusive ? `${promise}, on a machine that is not busy` : promise,
    isBroken: !isInconclusive,
    isInconclusive,
  };
}

export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** Formats the result as text: the measured figures, and whether the promises were kept. */
export function resultTable(rows: readonly Row[], paint: Paint): string[] {
  const nameWidth = Math.max(...rows.map(({ name }) => name.length));
  const valueWidth = Math.max(...rows.map(({ value }) => value.length));
  const rule = paint.faint("─".repeat(nameWidth + valueWidth + 36));
  const lines = rows.map(({ name, value, promise, isBroken, isInconclusive }) => {
    const figure = `${name.padEnd(nameWidth)}  ${paint.strong(value.padStart(valueWidth))}`;
    if (isBroken === undefined) return figure;
    const mark = isInconclusive ? "?" : isBroken ? paint.bad("✗") : paint.good("✓");
    return `${figure}  ${mark} ${paint.faint(promise ?? "")}`;
  });
  const head = `${" ".repeat(nameWidth)}  ${"seen".padStart(valueWidth)}    promised`;
  return [rule, paint.faint(head), ...lines, rule];
}
