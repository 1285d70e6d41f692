import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import type { Queue } from "sluice";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { scriptProcesses, type ScriptProcess } from "../../support/children/script-process.ts";
import { postTo, services } from "../../support/server/service.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const servers = services();
const processes = scriptProcesses();

const MAIL = "/v1/queues/mail";
const LOCK_MS = 2_000;
const WORKER = fileURLToPath(
  new URL("../../../examples/other-languages/worker.py", import.meta.url),
);

/** A server process, and what it is asked with. */
async function startServer(): Promise<{
  readonly process: ScriptProcess;
  readonly post: ReturnType<typeof postTo>;
}> {
  const process = processes.start("test/support/processes/service-replica.ts", {
    args: [inject("redisUrl"), sluices.prefix(), "1000", "1"],
  });
  await waitUntil(() => process.stdout.includes("\n"), "the server listens");
  return { process, post: postTo(process.stdout.split("\n")[0]!) };
}

function openMail(): Queue<object> {
  const sluice = sluices.open();
  return sluice.queue("mail", { bucket: sluice.bucket("mail", { rate: "1000/s" }) });
}

interface Python {
  readonly stdout: string;
  /** Ends the worker with this signal, and waits for it. Resolves with its exit code. */
  readonly end: (signal: NodeJS.Signals) => Promise<number | null>;
}

function startPython(url: string): Python {
  const env = { ...process.env, SLUICE_URL: url, LOCK_MS: String(LOCK_MS) };
  const child = spawn("python3", [WORKER, "mail"], { env, stdio: ["ignore", "pipe", "inherit"] });
  const exited = once(child, "exit").then(([code]) => code as number | null);
  let stdout = "";
  child.stdout.on("data", (chunk: Buffer) => (stdout += chunk.toString()));
  async function end(signal: NodeJS.Signals): Promise<number | null> {
    child.kill(signal);
    return exited;
  }
  onTestFinished(async () => void (await end("SIGKILL")));
  return {
    get stdout() {
      return stdout;
    },
    end,
  };
}

describe("jobs that clients have taken", () => {
  it("are completed through another server after theirs was killed", async () => {
    const queue = openMail();
    const [first, second] = [await startServer(), await startServer()];
    await queue.enqueueMany([{ a: 1 }, { a: 2 }]);
    const taken: { id: string; receipt: string; data: object }[] = [];
    while (taken.length < 2) {
      const { json } = await first.post(`${MAIL}/take`, { max: 2, waitMs: 20_000 });
      taken.push(...json.jobs);
    }

    first.process.signal("SIGKILL");
    await first.process.ended;
    const jobs = taken.map(({ receipt, data }) => ({ receipt, result: data }));
    const { json } = await second.post(`${MAIL}/complete`, { jobs });
    const none = await second.post(`${MAIL}/take`, { waitMs: 200 });

    const done = taken.map(({ id }) => ({ id, state: "done" }));
    expect(json.results).toEqual(done);
    expect(none.json.jobs).toEqual([]);
    expect(await queue.counts()).toMatchObject({ done: 2, active: 0, waiting: 0 });
  }, 60_000);

  it("survive the death of their client: other clients run them, and no other job runs twice", async () => {
    const queue = openMail();
    const { url } = await servers.start(sluices.open());
    await queue.enqueueMany(
      Array.from({ length: 4 }, (_, index) => ({ slow: index, seconds: 600 })),
    );
    const dying = startPython(url);
    await waitUntil(() => dying.stdout.split("\n").length > 4, "it holds four jobs");
    await dying.end("SIGKILL");
    await queue.enqueueMany(Array.from({ length: 20 }, (_, index) => ({ quick: 100 + index })));

    const { post } = await startServer();
    const seen: string[] = [];
    const isDone = async (): Promise<boolean> => (await queue.counts()).done === 24;
    while (!(await isDone())) {
      const { json } = await post(`${MAIL}/take`, { max: 10, waitMs: 1_000 });
      seen.push(...json.jobs.map(({ id }: { id: string }) => id));
      if (json.jobs.length === 0) continue;
      const jobs = json.jobs.map(({ receipt }: { receipt: string }) => ({ receipt }));
      await post(`${MAIL}/complete`, { jobs });
    }

    expect(seen.length).toBe(24);
    expect(new Set(seen).size).toBe(24);
    expect(await queue.counts()).toMatchObject({ active: 0, waiting: 0, failed: 0 });
  }, 60_000);
});

describe("the worker in Python", () => {
  it("runs jobs, keeps the locks of long ones, and ends its jobs before it stops", async () => {
    const queue = openMail();
    const { url } = await servers.start(sluices.open());
    const python = startPython(url);
    // Longer than a lock lasts without renewal, with what a look for expired locks takes.
    const long = await queue.enqueue({ long: true, seconds: (2.5 * LOCK_MS) / 1_000 });
    const broken = await queue.enqueue({ seconds: "soon" }, { attempts: 1 });

    await expect(long.finished()).resolves.toEqual({
      done: { long: true, seconds: (2.5 * LOCK_MS) / 1_000 },
    });
    await expect(broken.finished()).rejects.toThrow("TypeError");
    const last = await queue.enqueue({ last: true, seconds: 1 });
    await waitUntil(() => python.stdout.includes("last"), "it has the last job");
    const code = await python.end("SIGTERM");

    expect(code).toBe(0);
    expect(await last.finished()).toEqual({ done: { last: true, seconds: 1 } });
    expect(python.stdout.match(/long/g)).toHaveLength(1);
  }, 60_000);
});
