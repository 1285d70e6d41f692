import { describe, expect, it } from "vitest";
import { judgeTenants, type TenantsSeen } from "../../soak/tenants/judge-tenants.ts";
import { isLarge, tenantOf, type Fate } from "../../soak/tenants/tenants.ts";
import { callAt, struckBy } from "./records.ts";

const NOTHING: TenantsSeen = {
  calls: [],
  stored: [],
  removals: [],
  dead: [],
  waiting: new Set(),
  struck: [],
  standstills: [],
};

const jobOf = (number: number, fate: Fate = "done", tenant = tenantOf(9)) => ({
  number,
  tenant,
  fate,
});
const storedAt = (ms: number, ...jobs: ReturnType<typeof jobOf>[]) => ({
  askedMs: ms - 1,
  storedMs: ms,
  isNewcomer: false,
  jobs,
  ids: jobs.map(({ number }) => `id ${number}`),
});
const callOf = (job: number, ms: number, attempt = 1, tenant = tenantOf(9)) =>
  callAt(ms, { job, attempt, tenant });

describe("the judge of the tenants' queue", () => {
  it("finds a confirmed job that is missing", () => {
    const { lost } = judgeTenants({
      ...NOTHING,
      stored: [storedAt(10, jobOf(1), jobOf(2), jobOf(3), jobOf(4), jobOf(5, "thrown"))],
      calls: [callOf(1, 20), callOf(5, 30)],
      dead: [{ data: jobOf(2, "discarded"), reason: "can never be done" }],
      removals: [{ beganMs: 11, endedMs: 12, ids: new Set(["id 3"]) }],
    });

    expect(lost).toEqual([4, 5]);
  });

  it("excuses jobs that were stored before a tool had removed all, and no later ones", () => {
    const { lost } = judgeTenants({
      ...NOTHING,
      stored: [storedAt(10, jobOf(1)), storedAt(30, jobOf(2))],
      removals: [{ beganMs: 11, endedMs: 20, ids: "all" }],
    });

    expect(lost).toEqual([2]);
  });

  it("finds dead letters that did not fail", () => {
    const { buried } = judgeTenants({
      ...NOTHING,
      dead: [
        { data: jobOf(1, "hasty"), reason: "Expired: it had to start by then" },
        { data: jobOf(2), reason: "Expired: it had to start by then" },
        { data: jobOf(3, "given up"), reason: "job stalled more than allowable limit" },
      ],
    });

    expect(buried).toHaveLength(2);
  });

  it("finds a time in which nothing started while a job waited", () => {
    const idle = (storedMs: number) =>
      judgeTenants({
        ...NOTHING,
        stored: [storedAt(storedMs, jobOf(1), jobOf(2))],
        calls: [callOf(1, 1_000), callOf(2, 4_000)],
      }).idle;

    expect(idle(10)).toEqual([{ fromMs: 1_000, toMs: 4_000 }]);
    expect(idle(2_500)).toEqual([{ fromMs: 2_500, toMs: 4_000 }]);
    expect(idle(3_500)).toEqual([]);
  });

  it("excuses it while a fault stops all jobs, and not while it stops one worker", () => {
    const idle = (name: "Redis restarted" | "worker stopped") =>
      judgeTenants({
        ...NOTHING,
        stored: [storedAt(10, jobOf(1), jobOf(2))],
        calls: [callOf(1, 1_000), callOf(2, 4_000)],
        struck: [struckBy(name, { fromMs: 1_500, toMs: 3_500 })],
      }).idle;

    expect(idle("Redis restarted")).toEqual([]);
    expect(idle("worker stopped")).toHaveLength(1);
  });

  it("counts the turns of others beyond a newcomer's own", () => {
    const large = tenantOf(1);
    const newcomer = "newcomer 1";
    const calls = [
      ...Array.from({ length: 20 }, (_, index) => callOf(index, 20 + index, 1, large)),
      callOf(101, 50, 1, newcomer),
      callOf(102, 51, 1, newcomer),
    ];
    const stored = [
      {
        ...storedAt(10, jobOf(101, "done", newcomer), jobOf(102, "done", newcomer)),
        isNewcomer: true,
      },
    ];
    const judged = (struck: TenantsSeen["struck"]) =>
      judgeTenants({ ...NOTHING, stored, calls, struck }).newcomers;

    expect(isLarge(large)).toBe(true);
    // Two turns are the newcomer's, and one had begun.
    expect(judged([])).toEqual([{ tenant: newcomer, beyond: 17 }]);
    expect(judged([struckBy("worker killed", { fromMs: 15, toMs: 30 })])).toEqual([]);
  });
});
