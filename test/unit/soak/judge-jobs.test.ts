import { describe, expect, it } from "vitest";
import { judgeJobs, type JobsSeen } from "../../soak/judge/judge-jobs.ts";
import type { Call, Struck } from "../../soak/records.ts";
import { callAt, struckBy } from "./records.ts";

const NOTHING: JobsSeen = {
  confirmed: [],
  dead: new Set(),
  waiting: new Set(),
  calls: [],
  struck: [],
  standstills: [],
};

/** The jobs that were done again without a reason. */
const unexplained = (calls: readonly Call[], struck: readonly Struck[] = []) =>
  judgeJobs({ ...NOTHING, calls, struck }).unexplained.map(({ first }) => first.job);

describe("the judge of jobs", () => {
  it("finds a confirmed job that is missing", () => {
    const { lost } = judgeJobs({
      ...NOTHING,
      confirmed: [1, 2, 3, 4],
      calls: [callAt(10, { job: 1 })],
      dead: new Set([2]),
      waiting: new Set([3]),
    });

    expect(lost).toEqual([4]);
  });

  it("does not count an unanswered call as the end of a job", () => {
    const calls = (["refused", "hung", "reset"] as const).map((answer) =>
      callAt(10, { job: 1, answer }),
    );

    expect(judgeJobs({ ...NOTHING, confirmed: [1], calls }).lost).toEqual([1]);
  });

  it("finds a job that was repeated without a reason", () => {
    const calls = [callAt(10, { job: 1 }), callAt(3_000, { job: 1 }), callAt(20, { job: 2 })];

    expect(judgeJobs({ ...NOTHING, calls })).toMatchObject({ done: 2, again: 1 });
    expect(unexplained(calls)).toEqual([1]);
  });

  it("excuses one whose worker was killed, and not one of another worker", () => {
    const struck = [struckBy("worker killed", { fromMs: 15, toMs: 500, pid: 1 })];
    const twice = (job: number, pid: number) => [
      callAt(10, { job, pid }),
      callAt(3_000, { job, pid: 3 }),
    ];
    const calls = [...twice(1, 1), ...twice(2, 2)];

    expect(unexplained(calls, struck)).toEqual([2]);
  });

  it("excuses one that was done while Redis was unreachable, and not one long after", () => {
    const struck = [struckBy("wire stalled", { fromMs: 1_000, toMs: 4_000 })];
    const calls = [
      callAt(2_000, { job: 1 }),
      callAt(5_000, { job: 1 }),
      callAt(6_500, { job: 2 }),
      callAt(9_000, { job: 2 }),
    ];

    expect(unexplained(calls, struck)).toEqual([2]);
  });

  it("excuses one whose worker stood still by itself", () => {
    const calls = [callAt(10, { job: 1 }), callAt(4_000, { job: 1, pid: 2 })];
    const standstills = [{ pid: 1, fromMs: 20, toMs: 1_500 }];
    const stoodBy = (pid: number) => standstills.map((each) => ({ ...each, pid }));

    expect(judgeJobs({ ...NOTHING, calls, standstills }).unexplained).toEqual([]);
    expect(judgeJobs({ ...NOTHING, calls, standstills: stoodBy(2) }).unexplained).toHaveLength(1);
  });

  it("excuses nothing by a fault that ends no locks", () => {
    const struck = [struckBy("latency", { fromMs: 0, toMs: 4_000 })];
    const calls = [callAt(10, { job: 1 }), callAt(3_000, { job: 1 })];

    expect(unexplained(calls, struck)).toEqual([1]);
  });
});
