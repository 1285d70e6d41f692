import { expect, test } from "vitest";
import {
  formatComparison,
  hasRegressed,
  isWorse,
  listRegressions,
  ratioOf,
  wasDisturbed,
  type Figure,
  type Measured,
  type Round,
} from "../../../bench/compare/verdict.ts";

const COST: Figure = { key: "us", title: "CPU per call, µs", better: "lower", digits: 1 };
const SHARE: Figure = { key: "share", title: "share used", better: "higher", digits: 3 };

function round(base: number, current: number, key = COST.key): Round {
  return { base: { [key]: base }, current: { [key]: current }, peer: undefined };
}

const WORSE = round(10, 11.5);
const SAME = round(10, 10);

test("divides the new value by that of the base", () => {
  expect(ratioOf(COST, round(10, 5))).toBe(0.5);
});

test("has no ratio where the base lacks the feature", () => {
  const lacking: Round = { base: undefined, current: { us: 5 }, peer: undefined };

  expect(ratioOf(COST, lacking)).toBeUndefined();
});

test("has no ratio where a run lacks the figure", () => {
  expect(ratioOf(COST, { base: {}, current: { us: 5 }, peer: undefined })).toBeUndefined();
});

test("has no ratio where the base made no calls", () => {
  expect(ratioOf(COST, round(NaN, 5))).toBeUndefined();
});

test("counts values below the floor as the floor", () => {
  const floored = { ...COST, floor: 1 };

  expect(ratioOf(floored, round(0.001, 0.5))).toBe(1);
  expect(ratioOf(floored, round(0.001, 2))).toBe(2);
});

test("calls two zeros equal, and a cost that was zero infinitely worse", () => {
  expect(ratioOf(COST, round(0, 0))).toBe(1);
  expect(isWorse(COST, ratioOf(COST, round(0, 1))!)).toBe(true);
});

test.each([
  ["lower", 1.1, false],
  ["lower", 1.11, true],
  ["lower", 0.2, false],
  ["higher", 0.92, false],
  ["higher", 0.9, true],
  ["higher", 5, false],
] as const)("where %s is better, judges a ratio of %d", (better, ratio, expected) => {
  expect(isWorse({ ...COST, better }, ratio)).toBe(expected);
});

test.each([
  ["one of one", [WORSE], true],
  ["one of two", [WORSE, SAME], false],
  ["one of three", [WORSE, SAME, SAME], false],
  ["two of three", [WORSE, SAME, WORSE], true],
  ["three of five", [WORSE, WORSE, WORSE, SAME, SAME], false],
  ["four of five", [WORSE, WORSE, WORSE, WORSE, SAME], true],
])("needs two thirds of the rounds for a regression: %s", (_, rounds, expected) => {
  expect(hasRegressed(COST, rounds)).toBe(expected);
});

test("does not judge a figure that is only shown", () => {
  expect(hasRegressed({ ...COST, isJudged: false }, [WORSE, WORSE, WORSE])).toBe(false);
});

test("does not judge a figure that the base lacks", () => {
  const lacking: Round = { base: undefined, current: { us: 5 }, peer: undefined };

  expect(hasRegressed(COST, [lacking, lacking, lacking])).toBe(false);
});

test("calls a value that is no number worse", () => {
  expect(hasRegressed(COST, [round(10, NaN)])).toBe(true);
  expect(hasRegressed(SHARE, [round(1, NaN, "share")])).toBe(true);
});

test("lists the regressions of all scenarios", () => {
  const measured: Measured = {
    title: "plain",
    figures: [COST, SHARE],
    peer: undefined,
    rounds: [{ base: { us: 10, share: 1 }, current: { us: 20, share: 1 }, peer: undefined }],
  };

  expect(listRegressions([measured])).toEqual(["plain: CPU per call, µs"]);
});

test.each([
  ["of the base", { others: 0.6 }, { others: 0.1 }, true],
  ["of the new build", { others: 0.1 }, { others: 0.6 }, true],
  ["of none", { others: 0.5 }, { others: 0.5 }, false],
  ["of none that says so", undefined, {}, false],
])("says whether other processes disturbed a run: %s", (_, base, current, expected) => {
  const rounds = [{ base, current, peer: undefined }];

  expect(wasDisturbed([{ title: "plain", figures: [], peer: undefined, rounds }])).toBe(expected);
});

test("prints medians, the ratio of each round and the peer", () => {
  const rounds: readonly Round[] = [
    { base: { us: 10 }, current: { us: 5 }, peer: { us: 100 } },
    { base: { us: 20 }, current: { us: 40 }, peer: { us: 100 } },
    { base: { us: 30 }, current: { us: 15 }, peer: { us: 100 } },
  ];

  const table = formatComparison([{ title: "plain", figures: [COST], peer: "Peer", rounds }]);

  const [, , row] = table.split("\n").map((line) => line.split("|").map((cell) => cell.trim()));
  expect(row).toEqual(
    ["", "plain", COST.title, "20.0", "15.0", "0.50", "0.50 2.00 0.50", "ok", "Peer: 100.0"].concat(
      ["0.150", ""],
    ),
  );
});

test("prints a dash for what the base lacks", () => {
  const rounds: readonly Round[] = [{ base: undefined, current: { us: 5 }, peer: undefined }];

  const table = formatComparison([{ title: "plain", figures: [COST], peer: undefined, rounds }]);

  const [, , row] = table.split("\n").map((line) => line.split("|").map((cell) => cell.trim()));
  expect(row).toEqual(["", "plain", COST.title, "–", "5.0", "–", "–", "–", ""]);
});
