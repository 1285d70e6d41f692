/** Compares the figures of two builds, round by round. Measures nothing itself. */
import { median } from "../fleet/measure.ts";
import { formatNumber } from "../promises.ts";

/** A figure is worse if its ratio exceeds this value in the bad direction. */
const WORST_RATIO = 1.1;

/** One figure of a scenario. */
export interface Figure {
  readonly key: string;
  readonly title: string;
  readonly better: "lower" | "higher";
  readonly digits: number;
  /** Lower values are raised to this value, because their ratio would be noise. Defaults to 0. */
  readonly floor?: number;
  /** False if the figure is only shown, and never counts as a regression. Defaults to true. */
  readonly isJudged?: boolean;
}

/** How many cores other processes used. Above half a core, ratios of equal builds exceed 1.10 too. */
export const OTHERS: Figure = {
  key: "others",
  title: "used by other processes, cores",
  better: "lower",
  digits: 2,
  floor: 0.5,
  isJudged: false,
};

/** The figures of one run, by key. */
export type Figures = Readonly<Record<string, number>>;

/**
 * The figures of one round. `base` is undefined if the base build lacks the feature, and `peer` if there is no peer.
 */
export interface Round {
  readonly base: Figures | undefined;
  readonly current: Figures;
  readonly peer: Figures | undefined;
}

/** The measured rounds of one scenario. */
export interface Measured {
  readonly title: string;
  readonly figures: readonly Figure[];
  /** The title of the peer in the last columns. */
  readonly peer: string | undefined;
  readonly rounds: readonly Round[];
}

/** Returns current ÷ base. Returns undefined if a build does not have the figure, or if the base has no number. */
export function ratioOf({ key, floor = 0 }: Figure, { base, current }: Round): number | undefined {
  const [before, after] = [base?.[key], current[key]];
  if (before === undefined || Number.isNaN(before) || after === undefined) return undefined;
  const [from, to] = [Math.max(before, floor), Math.max(after, floor)];
  return from === to ? 1 : to / from;
}

/**
 * True if a ratio is worse than 1.10: above 1.10 if lower is better, or below 1 ÷ 1.10 if higher is better. NaN
 * counts as worse, because a build that made no calls has such figures.
 */
export function isWorse({ better }: Figure, ratio: number): boolean {
  return better === "lower" ? !(ratio <= WORST_RATIO) : !(ratio >= 1 / WORST_RATIO);
}

/** True if the figure is judged, and is worse in at least two thirds of the rounds. */
export function hasRegressed(figure: Figure, rounds: readonly Round[]): boolean {
  if (figure.isJudged === false) return false;
  const worse = rounds.filter((round) => {
    const ratio = ratioOf(figure, round);
    return ratio !== undefined && isWorse(figure, ratio);
  });
  return worse.length > 0 && worse.length * 3 >= rounds.length * 2;
}

/** Lists the figures that have regressed: `plain: Redis CPU per call, µs`. */
export function listRegressions(all: readonly Measured[]): string[] {
  return all.flatMap(({ title, figures, rounds }) =>
    figures
      .filter((figure) => hasRegressed(figure, rounds))
      .map((figure) => `${title}: ${figure.title}`),
  );
}

/** True if other processes disturbed a run of either build. */
export function wasDisturbed(all: readonly Measured[]): boolean {
  const { key, floor = 0 } = OTHERS;
  const runs = all.flatMap(({ rounds }) => rounds.flatMap(({ base, current }) => [base, current]));
  return runs.some((figures) => (figures?.[key] ?? 0) > floor);
}

const HEAD = ["scenario", "figure", "base", "new", "new ÷ base", "each round", "verdict"];
const LEFT_COLUMNS = 2;

/** Formats all figures as one markdown table, with medians over the rounds. */
export function formatComparison(all: readonly Measured[]): string {
  const hasPeer = all.some(({ peer }) => peer !== undefined);
  const lines = [
    [...HEAD, ...(hasPeer ? ["peer", "new ÷ peer"] : [])],
    ...all.flatMap((measured) =>
      measured.figures.map((figure) => {
        const cells = rowOf(measured, figure);
        return hasPeer ? [...cells, ...peerCells(measured, figure)] : cells;
      }),
    ),
  ];
  const widths = lines[0]!.map((_, at) => Math.max(...lines.map((line) => line[at]!.length)));
  const rule = widths.map((width, at) =>
    at < LEFT_COLUMNS ? "-".repeat(width) : `${"-".repeat(width - 1)}:`,
  );
  const aligned = lines.map((line) =>
    line.map((cell, at) =>
      at < LEFT_COLUMNS ? cell.padEnd(widths[at]!) : cell.padStart(widths[at]!),
    ),
  );
  const [head, ...body] = aligned;
  return [head!, rule, ...body].map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

function rowOf({ title, rounds }: Measured, figure: Figure): string[] {
  const ratios = rounds.flatMap((round) => ratioOf(figure, round) ?? []);
  return [
    title,
    figure.title,
    formatMedian(
      figure,
      rounds.map(({ base }) => base),
    ),
    formatMedian(
      figure,
      rounds.map(({ current }) => current),
    ),
    formatNumber(median(ratios), 2),
    ratios.map((ratio) => formatNumber(ratio, 2)).join(" ") || "–",
    verdictOf(figure, rounds, ratios),
  ];
}

function verdictOf(figure: Figure, rounds: readonly Round[], ratios: readonly number[]): string {
  if (ratios.length === 0) return "–";
  if (figure.isJudged === false) return "not judged";
  return hasRegressed(figure, rounds) ? "WORSE" : "ok";
}

function peerCells({ peer, rounds }: Measured, { key, digits }: Figure): string[] {
  const ofPeer = median(rounds.flatMap((round) => round.peer?.[key] ?? []));
  const ofNew = median(rounds.flatMap(({ current }) => current[key] ?? []));
  if (Number.isNaN(ofPeer)) return ["–", "–"];
  return [`${peer}: ${formatNumber(ofPeer, digits)}`, formatNumber(ofNew / ofPeer, 3)];
}

function formatMedian({ key, digits }: Figure, runs: readonly (Figures | undefined)[]): string {
  return formatNumber(median(runs.flatMap((figures) => figures?.[key] ?? [])), digits);
}
