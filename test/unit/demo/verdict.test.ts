import { describe, expect, it } from "vitest";
import { judge, type Figures, type PacedCustomer } from "../../../examples/demo/verdict.ts";

const KEPT: Figures = {
  jobs: 2_000,
  delivered: 2_000,
  waiting: 0,
  failed: 0,
  twice: 0,
  worstSecond: 101,
  surelyInWorstSecond: 101,
  refused: 0,
  unverified: 0,
  failedOnce: 1,
  cameAgain: 1,
  paced: [],
  stalledMs: 3,
  workersStalledMs: 5,
  share: 0.99,
  crashedWorkers: 0,
  machine: { idleShare: 0.5, stoodStillMs: 20, runMs: 20_000 },
};

const broken = (figures: Partial<Figures>): string[] =>
  judge(100, { ...KEPT, ...figures })
    .filter(({ isBroken }) => isBroken === true)
    .map(({ name }) => name);

const pacedAt = (worstSecond: number, surelyInWorstSecond: number): PacedCustomer => ({
  tenant: "umbrella",
  perSecond: 10,
  worstSecond,
  surelyInWorstSecond,
});

describe("the demo's verdict, at 100 calls a second", () => {
  it("finds every promise kept with one call too many in the worst second", () => {
    expect(broken({})).toEqual([]);
  });

  it("finds two calls too many", () => {
    expect(broken({ worstSecond: 102, surelyInWorstSecond: 102 })).toEqual([
      "worst second",
      "worst second, of the cap",
    ]);
  });

  it("excuses calls that came late after a standstill, and says so", () => {
    const late = { worstSecond: 102, surelyInWorstSecond: 101 };

    const [row] = judge(100, { ...KEPT, ...late }).filter(({ name }) => name === "worst second");

    expect(broken(late)).toEqual([]);
    expect(row).toMatchObject({
      value: "102 (1 late)",
      promise: "at most 101 calls, except late ones",
    });
  });

  it("excuses 429 answers to late calls, and to no others", () => {
    expect(broken({ refused: 1, worstSecond: 102, surelyInWorstSecond: 101 })).toEqual([]);
    expect(broken({ refused: 1, worstSecond: 101, surelyInWorstSecond: 100 })).toEqual([
      "429 answers",
    ]);
  });

  it.each([
    ["lost", { delivered: 1_999 }],
    ["twice", { twice: 1 }],
    ["given up", { delivered: 1_999, failed: 1 }],
    ["429 answers", { refused: 1 }],
    ["signatures that do not fit", { unverified: 1 }],
    ["answered 503, sent again", { cameAgain: 0 }],
    ["worst second of umbrella", { paced: [pacedAt(12, 12)] }],
    ["share of the cap used", { share: 0.97 }],
  ])("finds what was %s", (name, figures) => {
    expect(broken(figures)).toEqual([name]);
  });

  it.each([
    ["stood still", { idleShare: 0.5, stoodStillMs: 900, runMs: 20_000 }],
    ["had no idle processor", { idleShare: 0.01, stoodStillMs: 20, runMs: 20_000 }],
  ])("reports timing as not conclusive on a machine that %s", (_what, machine) => {
    const worst = { worstSecond: 103, surelyInWorstSecond: 103, refused: 1 };
    const figures = { share: 0.9, ...worst, paced: [pacedAt(12, 12)], machine };

    const unsure = judge(100, { ...KEPT, ...figures }).filter((row) => row.isInconclusive === true);

    expect(broken(figures)).toEqual([]);
    expect(unsure.map(({ name, value }) => [name, value])).toEqual([
      ["worst second", "103"],
      ["worst second, of the cap", "1.030"],
      ["share of the cap used", "0.900"],
      ["worst second of umbrella", "12"],
      ["429 answers", "1"],
    ]);
    expect(broken({ lost: 1, delivered: 1_999, machine } as Partial<Figures>)).toEqual(["lost"]);
  });

  it("excuses an endpoint's calls that came late after a standstill", () => {
    expect(broken({ paced: [pacedAt(12, 11)] })).toEqual([]);
  });

  it("excuses a webhook that waits to be sent again", () => {
    expect(broken({ delivered: 1_999, waiting: 1, cameAgain: 0 })).toEqual([]);
  });

  it("excuses a webhook that came twice when a worker died", () => {
    expect(broken({ twice: 1, crashedWorkers: 1 })).toEqual([]);
  });
});
