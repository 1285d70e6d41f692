import { execFile } from "node:child_process";
import { join } from "node:path";
import process from "node:process";
import { promisify } from "node:util";
import { describe, expect, inject, it } from "vitest";
import { concurrency, leakyBucket } from "sluice";
import { runCli } from "../../support/children/run-cli.ts";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = scriptProcesses();

/** Starts `sluice` in a separate process, beside the sluices of the test. */
function start(...args: string[]) {
  return processes.start("src/cli/main.ts", {
    args: ["--prefix", sluices.prefix(), ...args],
    env: { REDIS_URL: inject("redisUrl"), SLUICE_BY: "ann" },
  });
}

/** Runs `sluice` beside the sluices of the test. */
function sluice(...args: string[]) {
  const env = { REDIS_URL: inject("redisUrl"), SLUICE_BY: "ann" };
  return runCli(["--prefix", sluices.prefix(), ...args], env);
}

async function usedBucket(options = { rate: "100/s", perKey: { rate: "5/s" } } as const) {
  const service = sluices.open();
  const bucket = service.bucket("stripe", options);
  await bucket.draw();
  await waitUntil(async () => (await service.overview()).buckets.length === 1, "it is told of");
  return bucket;
}

describe("sluice", () => {
  it("shows all buckets, and one", async () => {
    await usedBucket();

    const all = await sluice("buckets");
    const one = await sluice("bucket", "stripe");

    expect(all).toMatchObject({ code: 0, err: "" });
    expect(all.out).toMatch(/^BUCKET +CAP\/S +ACTUAL\/S/);
    expect(all.out).toMatch(/^stripe +100 +0\.1 +0 +- +0 +- +code$/m);
    expect(all.out).toMatch(/^1 process$/m);
    expect(one.out).toContain("policy:     100/s; per key 5/s (code)");
    expect(one.out).toContain("No call or job waits.");
  });

  it("shows how many calls a limit that adapts lets run at once", async () => {
    const service = sluices.open();
    const limits = [concurrency("auto", { initial: 4, max: 9 })];
    await service.bucket("llm", { limits }).run(() => {});
    await waitUntil(async () => (await service.overview()).buckets.length === 1, "it is reported");

    const [all, one, why] = [
      await sluice("buckets"),
      await sluice("bucket", "llm"),
      await sluice("why", "llm"),
    ];

    const text =
      "The limit 1 to 9 at once lets 4 calls run at once now. It calibrates: it still measures the latency without a queue.";
    expect(all.out.split("\n")).toContain(`llm: ${text}`);
    expect(one.out.split("\n")).toContain(text);
    expect(why.out.split("\n")).toContain(text);
  });

  it("changes a rate for all processes, logs the author, and undoes it", async () => {
    const bucket = await usedBucket();

    const set = await sluice("set", "stripe", "--rate", "20/s", "--for", "1h", "--reason", "429s");
    expect(set.out).toMatch(/^stripe: 20\/s; per key 5\/s \(override\), generation \d+$/m);
    expect(await bucket.status()).toMatchObject({
      policy: "20/s; per key 5/s",
      setBy: { by: "ann", reason: "429s" },
    });
    const { out } = await sluice("changes", "stripe");
    expect(out).toMatch(
      /configure +ann +100\/s; per key 5\/s -> 20\/s; per key 5\/s for 1 h +429s/,
    );

    expect((await sluice("undo", "stripe")).code).toBe(0);
    expect(await bucket.peek()).toMatchObject({ policyFrom: "code" });
    expect((await sluice("undo", "stripe")).err).toBe("There is no change to undo.\n");
  });

  it("shows why calls wait, and who paused them", async () => {
    const bucket = await usedBucket();
    await sluice("pause", "stripe", "--for", "15m", "--reason", "maintenance");
    const waiting = bucket.draw();
    waiting.catch(() => {});
    await waitUntil(async () => (await bucket.status()).waiting.total === 1, "it is told of");

    const { out } = await sluice("why", "stripe");

    expect(out).toMatch(/^The bucket is paused for 1[45](\.\d)? min: by ann, "maintenance"/);
    expect(out).toMatch(/1 call waits, the oldest for/);
    await sluice("resume", "stripe");
    expect((await waiting).bucket).toBe("stripe");
  });

  it("pauses only one key", async () => {
    const bucket = await usedBucket();

    await sluice("pause", "stripe", "--key", "acme");

    expect((await bucket.peek({ key: "acme" })).pausedForMs).toBe(Infinity);
    expect((await bucket.peek()).pausedForMs).toBe(0);
  });

  it("changes nothing in a dry run", async () => {
    const bucket = await usedBucket();

    const { code, out } = await sluice("set", "stripe", "--rate", "20/s", "--dry-run");

    expect(code).toBe(0);
    expect(out).toContain("stripe: 100/s; per key 5/s would become 20/s; per key 5/s.");
    expect(await bucket.peek()).toMatchObject({ policyFrom: "code" });
  });

  it("names the limits that a rate removes", async () => {
    const bucket = sluices.open().bucket("openai", { rate: "100/s", concurrency: 25 });
    await bucket.draw();

    const first = await sluice("set", "openai", "--rate", "20/s");
    const second = await sluice("set", "openai", "--rate", "10/s");

    expect(first.out).toContain("no longer in force: 25 at once.");
    expect(second.out).not.toContain("no longer");
  });

  it("names a limit of tokens that is removed, also where as many limits remain", async () => {
    const limits = [leakyBucket("100/s"), leakyBucket("900/min", { unit: "tokens" })];
    const bucket = sluices.open().bucket("openai", { limits });
    await bucket.draw();
    const change = ["set", "openai", "--rate", "20/s", "--concurrency", "5"];

    const { out } = await sluice(...change);
    await sluice("undo", "openai");
    const json = await sluice(...change, "--json");

    expect(out).toMatch(/no longer in force: 900\/min tokens\.$/m);
    expect(JSON.parse(json.out)).toMatchObject({ dropped: ["900/min tokens"] });
  });

  it('prints JSON with "forever" for endless times', async () => {
    const bucket = await usedBucket();
    await bucket.pause();

    const { out } = await sluice("bucket", "stripe", "--json");

    expect(JSON.parse(out)).toMatchObject({ name: "stripe", pausedForMs: "forever" });
    expect((await sluice("bucket", "stripe")).out).toMatch(/^100\/s +.* after a resume$/m);
    const { buckets } = JSON.parse((await sluice("--json", "buckets")).out) as {
      buckets: { name: string }[];
    };
    expect(buckets.map(({ name }) => name)).toEqual(["stripe"]);
  });

  it("has a separate exit code for each kind of failure", async () => {
    const bucket = await usedBucket();
    const { generation } = await bucket.peek();
    await bucket.configure({ rate: "50/s" });

    const missing = await sluice("bucket", "strip");
    const wrong = await sluice("set", "stripe", "--rate", "fast");
    const changed = await sluice("pause", "stripe", "--generation", String(generation));
    // The process has to end with the code too, also while its connection still fails.
    const unreachable = start("buckets", "--redis", "redis://127.0.0.1:1");

    expect(missing).toMatchObject({ code: 3, out: "" });
    expect(missing.err).toContain('There is no bucket "strip": there are stripe.');
    expect(wrong).toMatchObject({ code: 2, out: "" });
    expect(wrong.err).toMatch(/"rate" is "fast"/);
    expect(changed).toMatchObject({ code: 5, out: "" });
    expect(await unreachable.ended).toBe(4);
    expect(unreachable.stdout).toBe("");
    expect(unreachable.stderr).toContain("can be reached, or name another with --redis.");
    expect(await bucket.peek()).toMatchObject({ pausedForMs: 0, policy: "50/s; per key 5/s" });
  });

  it("strips control characters from names, authors and reasons", async () => {
    const name = "x\u202Ey";
    const words = "\u001B[2J\u009B2J\n\u202E";
    const service = sluices.open();
    const bucket = service.bucket(name, { rate: "100/s" });
    await bucket.draw();
    await waitUntil(async () => (await service.overview()).buckets.length === 1, "it is told of");
    await bucket.pause({ by: words, reason: words });

    const outputs = [
      await sluice("buckets"),
      await sluice("buckets", "--json"),
      await sluice("bucket", name),
      await sluice("why", name, "--json"),
      await sluice("changes"),
      await sluice("bucket", "missing"),
      await sluice("bucket", `${name}missing`),
    ];

    for (const { out, err } of outputs) {
      expect(`${out}${err}`).not.toMatch(/[^\P{C}\n]/u);
      expect(`${out}${err}`).toMatch(/./);
    }
    expect(JSON.parse(outputs[1]!.out)).toMatchObject({ buckets: [{ name }] });
  });

  it("ends quietly when its output is closed", async () => {
    await usedBucket();
    const top = start("top", "--every", "1");
    await waitUntil(() => top.stdout.includes("stripe"), "it has written");

    top.readNoMore();

    expect(await top.ended).toBe(0);
    expect(top.stderr).toBe("");
  });

  it("repeats its output as often as requested", async () => {
    await usedBucket();

    const { out } = await sluice("top", "--every", "1", "--count", "3");

    expect(out.match(/^stripe /gm)).toHaveLength(3);
  });

  it("starts at the top of a terminal each time, but not in JSON", async () => {
    await usedBucket();
    const main = join(inject("builtRoot"), "dist/cli.js");
    // Python's own pseudo-terminal.
    const inTerminal = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    const top = async (...more: string[]): Promise<string> => {
      const looks = ["--prefix", sluices.prefix(), "top", "--every", "1", "--count", "2", ...more];
      const args = ["-c", inTerminal, process.execPath, main, ...looks];
      const env = { ...process.env, REDIS_URL: inject("redisUrl") };
      return (await promisify(execFile)("python3", args, { env })).stdout;
    };

    const shown = await top();
    const json = await top("--json");

    expect(shown.split("\u001B[2J\u001B[H").map((look) => look.includes("stripe"))).toEqual([
      false,
      true,
      true,
    ]);
    expect(json).not.toContain("\u001B");
    expect(
      json
        .trim()
        .split("\r\n")
        .map((line) => JSON.parse(line).buckets[0].name),
    ).toEqual(["stripe", "stripe"]);
  });

  it("shows the processes that use buckets", async () => {
    await usedBucket();

    const { code, out } = await sluice("replicas");

    expect(code).toBe(0);
    expect(out).toMatch(/^REPLICA +HOST +PID +VERSION +STARTED\n/);
    expect(out).toMatch(new RegExp(`^\\S+ +\\S+ +${process.pid} +\\S+ +2\\S+Z$`, "m"));
  });

  it("checks Redis like sluice doctor", async () => {
    const { code, out } = await sluice("doctor");

    expect(code).toBe(0);
    for (const what of ["version", "eviction", "memory", "persistence", "clock", "latency"]) {
      expect(out).toMatch(new RegExp(`^(ok|warn|BAD) +${what} `, "m"));
    }
  });
});
