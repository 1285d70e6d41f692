import process from "node:process";
import { describe, expect, inject, it } from "vitest";
import { isRunning } from "../../support/children/is-running.ts";
import { scriptProcesses, type ScriptProcess } from "../../support/children/script-process.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const scripts = scriptProcesses();

function startDemo(args: readonly string[], redisUrl?: string, isSource = false): ScriptProcess {
  return scripts.start("examples/demo/main.ts", { args, env: { REDIS_URL: redisUrl }, isSource });
}

/** The processes that the demo says it has started: Redis, the downstream and the workers. */
function childPids({ stdout }: ScriptProcess): number[] {
  const lists = [...stdout.matchAll(/\bpid ([\d, ]+)$/gm)].map(([, list]) => list!.split(", "));
  return lists.flat().map(Number);
}

describe("the demo", () => {
  it("delivers each webhook once, and exits with the code of its table", async () => {
    const args = ["--rate", "200", "--jobs", "300", "--workers", "2", "--seconds", "20"];
    // As `npm run demo` does.
    const demo = startDemo(args, inject("redisUrl"), true);

    const exitCode = await demo.ended;

    expect(demo.stdout).toMatch(/^jobs +300$/m);
    expect(demo.stdout).toMatch(/^delivered +300$/m);
    expect(demo.stdout).toMatch(/^lost +0 +✓/m);
    expect(demo.stdout).toMatch(/^twice +0 +✓/m);
    // A machine that is busy with other things makes calls late, so the speed is left to the benchmark.
    expect(exitCode).toBe(demo.stdout.includes("Broken:") ? 1 : 0);
    expect(demo.stdout).toMatch(/^(Every promise was kept\.|Broken:|Not conclusive:)/m);
    expect(demo.stdout).toMatch(/^machine stood still +\d+ ms in all$/m);
    expect(demo.stderr).toBe("");
  });

  it.each(["SIGINT", "SIGTERM"] as const)(
    "leaves no process behind when %s ends it",
    async (signal) => {
      const demo = startDemo(["--workers", "2"]);
      await waitUntil(() => /delivered [1-9]/.test(demo.stdout), "the demo is under way");
      const pids = childPids(demo);
      expect(pids.map(isRunning)).toEqual([true, true, true, true]);

      demo.signal(signal);
      const exitCode = await demo.ended;

      expect(exitCode).toBe(signal === "SIGINT" ? 130 : 143);
      expect(pids.filter(isRunning)).toEqual([]);
      expect(demo.stdout).toMatch(/^lost +0 +✓/m);
    },
  );

  it("serves the board during the run, and after the end", async () => {
    const demo = startDemo(["--board", "--workers", "2", "--jobs", "200", "--rate", "200"]);
    await waitUntil(() => demo.stdout.includes("The board stays"), "it has ended");

    const url = /^board +(http\S+)$/m.exec(demo.stdout)![1]!;
    const { buckets } = (await (await fetch(`${url}/api/v1/buckets`)).json()) as {
      readonly buckets: readonly { readonly name: string; readonly capPerSecond: number }[];
    };
    const page = await fetch(url);

    expect(buckets).toMatchObject([{ name: "webhooks", capPerSecond: 200 }]);
    expect(await page.text()).toContain("<title>Sluice</title>");
    demo.signal("SIGINT");
    expect(await demo.ended).toBe(130);
  });

  it("leaves no process behind when it is killed outright", async () => {
    const demo = startDemo(["--workers", "2"]);
    await waitUntil(() => childPids(demo).length === 4, "all processes run");
    const pids = childPids(demo);

    demo.signal("SIGKILL");
    expect(await demo.ended).toBe(null);

    await waitUntil(() => !pids.some(isRunning), "its children have ended");
  });

  it("continues with the other workers when one crashes, and loses nothing", async () => {
    const demo = startDemo(["--workers", "2", "--jobs", "400", "--seconds", "8"]);
    await waitUntil(() => /delivered [1-9]/.test(demo.stdout), "the demo is under way");

    process.kill(childPids(demo).at(-1)!, "SIGKILL");
    await demo.ended;

    expect(demo.stdout).toContain("1 of 2 workers crashed.");
    expect(demo.stdout).toMatch(/^lost +0 +✓/m);
    expect(childPids(demo).filter(isRunning)).toEqual([]);
  });

  it.each([
    [["--rate", "fast"], '--rate is "fast"; give a whole number from 1 to 10000.'],
    [["--workers", "0"], '--workers is "0"; give a whole number from 1 to 32.'],
    [["--speed", "9"], "the flags are --rate, --jobs, --workers, --seconds"],
  ])("refuses %j with one line and exit code 2", async (args, line) => {
    const demo = startDemo(args);

    expect(await demo.ended).toBe(2);

    expect(demo.stderr.trimEnd().split("\n")).toHaveLength(1);
    expect(demo.stderr).toContain(line);
  });
});
