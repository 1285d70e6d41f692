import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { runCli } from "../../support/children/run-cli.ts";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { pretendWorker } from "../../support/jobs/outlook.ts";
import { partsOf } from "../../../src/sluice/parts.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = scriptProcesses();

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

async function json<Answer>(...args: string[]): Promise<Answer> {
  const { out, err } = await sluice(...args, "--json");
  expect(err).toBe("");
  return JSON.parse(out) as Answer;
}

async function openQueue(rate: "10/s" | "1/min" = "10/s") {
  const service = sluices.open();
  const bucket = service.bucket("stripe", { rate });
  const queue = service.queue<unknown>("charges", { bucket });
  await waitUntil(async () => (await service.overview()).queues.length === 1, "it is told of");
  return { service, bucket, queue };
}

async function folder(): Promise<string> {
  const made = await mkdtemp(join(tmpdir(), "sluice-cli-"));
  onTestFinished(() => rm(made, { recursive: true }));
  return made;
}

async function fileOf(lines: readonly unknown[]): Promise<string> {
  const path = join(await folder(), "jobs.jsonl");
  const texts = lines.map((line) => (typeof line === "string" ? line : JSON.stringify(line)));
  await writeFile(path, `${texts.join("\n")}\n`);
  return path;
}

interface Listed {
  readonly jobs: readonly { readonly id: string; readonly state: string }[];
  readonly cursor?: string;
}

describe("sluice, with queues,", () => {
  it("shows all queues, one queue, its jobs in pages, and a job with the reason for its wait", async () => {
    const { queue } = await openQueue();
    const jobs = await queue.enqueueMany([1, 2, 3], { key: "acme" });
    await queue.enqueue({ secret: 7 }, { id: "order-17", delayMs: 3_600_000 });

    const all = await sluice("queues");
    const one = await sluice("queue", "charges");
    const first = await json<Listed>("jobs", "charges", "--state", "waiting", "--limit", "2");
    const rest = await json<Listed>(
      "jobs",
      "charges",
      "--state",
      "waiting",
      "--cursor",
      first.cursor!,
    );
    const job = await sluice("job", "charges", "order-17");
    const why = await sluice("why", "charges", jobs[0]!.id);

    expect(all.out).toMatch(/^QUEUE +BUCKET +WORKERS +RUNNING\ncharges +stripe +0 +0 of 0$/m);
    expect(one.out).toContain("3 jobs waiting, 0 jobs running, 1 job due later.");
    expect(one.out).toMatch(/^The oldest due job, 1, has waited .+: no worker is alive\.$/m);
    expect(one.out).toContain("No forecast is possible: no worker is alive.");
    const ids = [...first.jobs, ...rest.jobs].map(({ id }) => id);
    expect(ids.toSorted()).toEqual(jobs.map(({ id }) => id).toSorted());
    expect(job.out).toContain("state:      delayed");
    expect(job.out).toContain("waits for:  delay, until 2");
    expect(job.out).not.toContain("secret");
    expect((await sluice("job", "charges", "order-17", "--data")).out).toContain('{"secret":7}');
    expect(why).toMatchObject({ code: 0, out: "no worker\n" });
  });

  it("names the jobs that a job waits for", async () => {
    const { queue } = await openQueue();
    const parents = await queue.enqueueMany([1, 2]);
    const child = await queue.enqueue(3, { after: parents });
    const { final } = await queue.enqueueGroup([], { then: { data: 4 }, open: true });

    const names = parents.map(({ id }) => `charges:${id}`).join(", ");
    expect(await sluice("why", "charges", child.id)).toMatchObject({
      code: 0,
      out: `the end of 2 jobs: ${names}\n`,
    });
    const job = await sluice("job", "charges", child.id);
    expect(job.out).toContain(`waits for:  the end of 2 jobs: ${names}`);
    expect((await sluice("why", "charges", final.id)).out).toBe("its group to be closed\n");
    const { id } = await queue.enqueue(9, { after: [final] });
    expect((await sluice("flow", "charges", id)).out).toContain(
      "waits for its group to be closed  <- blocks",
    );
    const { why } = await json<{ why: object }>("why", "charges", child.id);
    expect(why).toMatchObject({
      waitsFor: "parents",
      parents: { count: 2, first: parents.map(({ id }) => ({ queue: "charges", id })) },
    });
  });

  it("shows the jobs that a job waits for as a tree, and those that block it", async () => {
    const { queue } = await openQueue();
    const [first, other] = await queue.enqueueMany([1, 2]);
    const second = await queue.enqueue(3, { after: [first!] });
    const last = await queue.enqueue(4, { after: [second, other!] });

    const { code, out } = await sluice("flow", "charges", last.id);

    expect(code).toBe(0);
    expect(out.split("\n")).toEqual([
      `charges:${last.id}  delayed`,
      `  charges:${second.id}  delayed`,
      `    charges:${first!.id}  waiting, waits for no worker  <- blocks`,
      `  charges:${other!.id}  waiting, waits for no worker  <- blocks`,
      "",
    ]);
    expect((await sluice("flow", "charges", second.id)).out.split("\n")).toEqual([
      `charges:${second.id}  delayed`,
      `  charges:${first!.id}  waiting, waits for no worker  <- blocks`,
      "Jobs that wait for it:",
      `  charges:${last.id}  delayed`,
      "",
    ]);
    expect((await sluice("flow", "charges", other!.id)).out).toMatch(/^charges:\d+ .*<- blocks$/m);
    expect((await sluice("flow", "charges", "none")).code).not.toBe(0);
  });

  it("lists the outboxes that relays have reported", async () => {
    const { service } = await openQueue();
    expect((await sluice("outboxes")).out).toBe("No relay has reported an outbox.\n");
    const state = { name: "public.sluice_outbox", pending: 3, failed: 1, oldestMs: 7_200_000 };
    await partsOf("a test", service).insight.reportOutbox({ outbox: "o-1", state, moved: 5 });

    const { code, out } = await sluice("outboxes");

    expect(code).toBe(0);
    expect(out).toMatch(/^public\.sluice_outbox +3 +2 h +1 +5 +\S+ \S+ ago$/m);
  });

  it("replays and removes dead letters, and removes none without a confirmation", async () => {
    const { service, queue } = await openQueue();
    const worker = service.worker(queue, ({ data }) => {
      throw new Error(`refused ${String(data)}`);
    });
    await queue.enqueueMany(["a", "b", "c"], { attempts: 1 });
    await waitUntil(async () => (await queue.counts()).failed === 3, "all have failed");
    await worker.close();

    const failed = await sluice("failed", "charges");
    expect(failed.out).toMatch(/^\d+ +2\S+ +- +1 +refused b$/m);
    const unsure = await sluice("purge", "charges", "--all");
    expect(unsure).toMatchObject({ code: 2, out: "" });
    expect(unsure.err).toContain("--yes");
    expect(await sluice("replay", "charges")).toMatchObject({ code: 2 });
    expect((await queue.counts()).failed).toBe(3);

    const replayed = await sluice("replay", "charges", "--reason", "refused a");
    const purged = await sluice("purge", "charges", "--all", "--yes");

    expect(replayed.out).toBe("1 job was put back into the queue.\n");
    expect(purged.out).toBe("2 jobs were removed for good.\n");
    expect(await queue.counts()).toMatchObject({ waiting: 1, failed: 0 });
  });

  it("pauses a queue, logs the author, undoes it, and names the operations that cannot be undone", async () => {
    const { queue } = await openQueue();
    await queue.enqueue("a");
    const paused = await sluice("pause", "charges", "--queue", "--for", "1h", "--reason", "429s");
    expect(await sluice("undo", "charges", "--queue")).toMatchObject({
      out: "charges: not paused\n",
    });
    await queue.drain({ by: "bob" });

    const changes = await sluice("changes", "charges", "--queue");
    const refused = await sluice("undo", "charges", "--queue");

    expect(paused.out).toMatch(/^charges: paused for [\d.]+ (?:h|min)\n$/);
    expect(changes.out).toMatch(/charges +drain +bob +1 job waiting 1 -> 0 +-$/m);
    expect(changes.out).toMatch(
      /charges +pause +ann +pausedForMs 0 ms -> 1 h for 1 h \(undone\) +429s$/m,
    );
    expect(refused).toMatchObject({ code: 5, out: "" });
    expect(refused.err).toContain("cannot be undone: the jobs are gone");
  });

  it("changes settings of a queue for a time, logs the author, and refuses a change of an older state", async () => {
    const { queue } = await openQueue();
    const { generation } = await queue.status();
    const since = ["--generation", String(generation)];
    const settings = ["--setting", "maxBacklog.perKey=5", "defaults.attempts=3", "weights.a.b=2"];

    const set = await sluice("set", "charges", "--queue", ...settings, "--for", "1h", ...since);
    const late = await sluice("set", "charges", "--queue", "--setting", "maxBacklog=1", ...since);
    const wrong = await sluice("set", "charges", "--queue", "--setting", "maxBacklog=many");
    const rate = await sluice("set", "charges", "--queue", "--rate", "5/s");

    expect(set.out).toMatch(
      /^charges: .*maxBacklog\.perKey 5 \(override\).*weights\.a\.b 2 \(override\), generation \d+\n$/,
    );
    expect(late).toMatchObject({ code: 5, out: "" });
    expect(late.err).toContain('Queue "charges" has changed');
    expect(wrong).toMatchObject({ code: 2, out: "" });
    expect(rate.err).toContain('option "--rate"');
    const shown = await sluice("queue", "charges");
    expect(shown.out).toMatch(/^defaults\.attempts +3 +override by ann, since .*, for another /m);
    const back = ["--setting", "maxBacklog=code", "defaults=code", "weights=code"];
    await sluice("set", "charges", "--queue", ...back);
    expect((await queue.status()).settings.map(({ setBy }) => setBy)).not.toContain("override");
    const changes = await sluice("changes", "charges", "--queue");
    expect(changes.out).toMatch(/charges +set +ann +maxBacklog\.perKey - -> 5,.* for 1 h/m);
  });

  it("shows the effect of a rate on the jobs, and changes nothing", async () => {
    const { bucket, queue } = await openQueue("1/min");
    await pretendWorker(sluices.prefix(), "charges");
    await queue.enqueueMany(Array.from({ length: 600 }, (_, number) => number));

    const { code, out } = await sluice("set", "stripe", "--rate", "60/min", "--dry-run");

    expect(code).toBe(0);
    expect(out).toMatch(/^stripe: 1\/min would become 60\/min\.$/m);
    expect(out).toMatch(
      /^Queue charges: 600 pending jobs: all start within \S+ h now, within \S+ min after the change\.$/m,
    );
    expect(await bucket.peek()).toMatchObject({ policyFrom: "code" });
  });

  it("lists the existing names, and exits with a code, for an unknown queue or job", async () => {
    await openQueue();

    const missing = await sluice("queue", "charge");
    const noJob = await sluice("job", "charges", "order-9");
    const wrong = await sluice("jobs", "charges", "--state", "lost");

    expect(missing).toMatchObject({ code: 3, out: "" });
    expect(missing.err).toContain('There is no queue "charge": there are charges.');
    expect(noJob).toMatchObject({ code: 3, out: "" });
    expect(wrong).toMatchObject({ code: 2, out: "" });
    expect(wrong.err).toContain('give one of "waiting"');
  });

  it("strips control characters from ids, keys, reasons and data of jobs", async () => {
    const { service, queue } = await openQueue();
    const words = "\u001B[2J\u009B2J\u202E";
    await queue.enqueue({ words }, { key: "x\u202Ey", attempts: 1 });
    const worker = service.worker(queue, () => {
      throw new Error(words);
    });
    await waitUntil(async () => (await queue.counts()).failed === 1, "it has failed");
    await worker.close();
    const { id } = (await queue.jobs()).jobs[0]!;

    for (const args of [
      ["jobs", "charges", "--data"],
      ["job", "charges", id, "--data"],
      ["failed", "charges", "--data"],
      ["failed", "charges", "--data", "--json"],
    ]) {
      const { code, out, err } = await sluice(...args);
      expect(code).toBe(0);
      expect(`${out}${err}`).not.toMatch(/[^\P{C}\n]/u);
    }
  });
});

describe("sluice enqueue", () => {
  it("enqueues the lines of a file once, however often it runs", async () => {
    const { queue } = await openQueue();
    const lines = Array.from({ length: 1_200 }, (_, number) => ({ data: { number }, key: "acme" }));
    const file = await fileOf([{ data: "own", id: "order-17", priority: "high" }, "", ...lines]);

    const first = await json("enqueue", "charges", "--file", file);
    const again = await sluice("enqueue", "charges", "--file", file);

    expect(first).toEqual({ enqueued: 1_201, alreadyThere: 0 });
    expect(again).toMatchObject({ code: 0, out: "0 enqueued, 1201 were there already.\n" });
    expect((await queue.counts()).waiting).toBe(1_201);
    expect(await queue.job("order-17")).toMatchObject({ data: "own", priority: "high" });
  });

  it.each([
    ["is not JSON", "{", "line 3"],
    ["has no data", { key: "acme" }, "line 3"],
    ["has an option that is refused", { data: 1, prio: "high" }, "lines 1 to 4"],
  ])("stops at a line that %s, and continues from there", async (_name, wrong, where) => {
    const { queue } = await openQueue();
    const good = [{ data: 1 }, { data: 2 }];
    const file = await fileOf([...good, wrong, { data: 4 }]);

    const stopped = await sluice("enqueue", "charges", "--file", file, "--run", "r");

    expect(stopped).toMatchObject({ code: 2, out: "" });
    expect(stopped.err).toContain(where);
    const [, from = ""] = /Go on with --run 'r' --from (\d+)/.exec(stopped.err) ?? [];
    const mended = await fileOf([...good, { data: 3 }, { data: 4 }]);
    await json("enqueue", "charges", "--file", mended, "--run", "r", "--from", from);
    const { jobs } = await queue.jobs();
    expect(new Set(jobs.map(({ data }) => data))).toEqual(new Set([1, 2, 3, 4]));
    expect(jobs).toHaveLength(4);
  });

  it("shows its progress in a terminal, and reads standard input", async () => {
    const { queue } = await openQueue();
    const file = await fileOf(Array.from({ length: 700 }, (_, number) => ({ data: number })));
    const command = [process.execPath, join(inject("builtRoot"), "dist/cli.js")];
    const args = ["--prefix", sluices.prefix(), "enqueue", "charges", "--file", "-"];
    const line = [...command, ...args].map((part) => `'${part}'`).join(" ");
    const env = { ...process.env, REDIS_URL: inject("redisUrl"), FILE: file };

    // Python's own pseudo-terminal: what runs in it sees a terminal on all but its standard input.
    const inTerminal = "import pty, sys; sys.exit(pty.spawn(['/bin/sh', '-c', sys.argv[1]]) >> 8)";
    const ran = await promisify(execFile)("python3", ["-c", inTerminal, `${line} < "$FILE"`], {
      env,
    });

    expect(ran.stdout).toContain("\r500 lines, 500 enqueued");
    expect(ran.stdout).toContain("700 enqueued, 0 were there already.");
    expect((await queue.counts()).waiting).toBe(700);
  });
});

describe("sluice worker", () => {
  it("runs the workers of a module until it is interrupted, and ends their jobs", async () => {
    const { queue } = await openQueue();
    const path = join(await folder(), "work.mjs");
    await writeFile(
      path,
      `import { once } from "node:events";
      export default (sluice) => {
        const bucket = sluice.bucket("stripe", { rate: "10/s" });
        sluice.worker(sluice.queue("charges", { bucket }), async ({ data }) => {
          console.log("began", data);
          await once(process, "SIGTERM");
          await new Promise(setImmediate);
          return data * 2;
        });
      };`,
    );
    const job = await queue.enqueue(21);
    const running = start("worker", path);
    await waitUntil(() => running.stdout.includes("began 21"), "it has begun");

    running.signal("SIGTERM");

    expect(await running.ended).toBe(0);
    expect(await queue.job(job.id)).toMatchObject({ result: 42 });
  });

  it("reports mistakes in a module", async () => {
    const path = join(await folder(), "wrong.mjs");
    await writeFile(path, "export default 5;");

    expect((await sluice("worker", path)).err).toContain("its default export must be a function");
    const idle = join(await folder(), "idle.mjs");
    await writeFile(
      idle,
      "export default (sluice) => void sluice.bucket('stripe', { rate: '1/s' });",
    );
    const none = await sluice("worker", idle);
    expect(none).toMatchObject({ code: 2 });
    expect(none.err).toContain("it started no worker");
    const missing = await sluice("worker", join(path, "missing.mjs"));
    expect(missing).toMatchObject({ code: 2 });
    expect(missing.err).toContain("it could not be loaded");
  });
});

describe("sluice completion", () => {
  it("completes commands, and the options of each, in bash", async () => {
    const { out } = await sluice("completion", "bash");
    const complete = async (...words: string[]) => {
      const quoted = words.map((word) => `'${word}'`).join(" ");
      const ask = `COMP_WORDS=(${quoted}); COMP_CWORD=${words.length - 1}; _sluice; echo "\${COMPREPLY[@]}"`;
      const ran = await promisify(execFile)("bash", ["--norc", "-c", `${out}\n${ask}`]);
      return ran.stdout.trim().split(" ");
    };

    expect(await complete("sluice", "enq")).toEqual(["enqueue"]);
    expect(await complete("sluice", "--json", "set", "stripe", "--dry")).toEqual(["--dry-run"]);
    expect(await complete("sluice", "purge", "charges", "--y")).toEqual(["--yes"]);
  });

  it("exists for zsh and fish, and for no other shell", async () => {
    expect((await sluice("completion", "zsh")).out).toContain("bashcompinit");
    const fish = (await sluice("completion", "fish")).out;
    expect(fish).toMatch(/^complete -c sluice -n __fish_use_subcommand -a enqueue -d '/m);
    expect(fish).toContain("'__fish_seen_subcommand_from set' -l dry-run");
    expect(await sluice("completion", "csh")).toMatchObject({ code: 2, out: "" });
  });
});
