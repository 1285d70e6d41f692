import { describe, expect, inject, it } from "vitest";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = scriptProcesses();

function demo(...args: readonly string[]) {
  return processes.start("src/cli/main.ts", {
    args: ["--prefix", sluices.prefix(), "demo", ...args],
    env: { REDIS_URL: inject("redisUrl") },
  });
}

interface Result {
  readonly capPerSecond: number;
  readonly arrived: number;
  readonly byProcess: readonly number[];
  readonly worstSecond: number;
  readonly seconds: readonly { readonly arrived: number; readonly byProcess: readonly number[] }[];
}

describe("sluice demo", () => {
  it("has several processes share one rate, and reports what arrived", async () => {
    const shown = demo("--seconds", "3", "--rate", "40/s", "--json");

    expect(await shown.ended).toBe(0);
    expect(shown.stderr).toBe("");
    const { capPerSecond, arrived, byProcess, seconds } = JSON.parse(shown.stdout) as Result;
    const sumOf = (counts: readonly number[]) => counts.reduce((sum, each) => sum + each);
    expect(capPerSecond).toBe(40);
    expect(seconds).toHaveLength(3);
    expect(byProcess).toHaveLength(3);
    expect(sumOf(byProcess)).toBe(arrived);
    expect(seconds.map((each) => sumOf(each.byProcess))).toEqual(
      seconds.map((each) => each.arrived),
    );
    expect(arrived).toBeGreaterThan(40);
  });

  it("shows a table while it runs, and ends early and cleanly on Ctrl-C", async () => {
    const shown = demo("--seconds", "600", "--processes", "2");

    await waitUntil(() => /^ +1 +\d+ +\d+ +\d+$/m.test(shown.stdout), "a second is over");
    shown.signal("SIGINT");

    expect(await shown.ended).toBe(0);
    expect(shown.stdout).toMatch(/^SECOND +ARRIVED +PROCESS 1 +PROCESS 2$/m);
    expect(shown.stdout).toMatch(
      /\d+ calls arrived.*At most \d+ arrived in any second; the rate is 50\/s\.\n$/,
    );
    expect(shown.stderr).toBe("");
  });

  it("refuses an invalid rate, and reports an unreachable Redis, before it starts any process", async () => {
    const wrong = demo("--rate", "fast");
    const away = processes.start("src/cli/main.ts", {
      args: ["demo", "--redis", "redis://127.0.0.1:1"],
    });

    expect([await wrong.ended, await away.ended]).toEqual([2, 4]);
    expect(wrong.stderr).toContain("rate");
    expect(away.stdout).toBe("");
  });
});
