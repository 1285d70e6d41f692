import { describe, expect, inject, it } from "vitest";
import type { Logger } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { openQueue } from "../../support/jobs/open-queue.ts";
import { closedUrl } from "../../support/servers/closed-url.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const scripts = scriptProcesses();

interface Line {
  readonly level: "warn" | "error";
  readonly facts: Readonly<Record<string, unknown>>;
  readonly text: string;
}

function listen(): { readonly lines: Line[]; readonly logger: Logger } {
  const lines: Line[] = [];
  const take =
    (level: Line["level"]) =>
    (facts: object, text: string): void =>
      void lines.push({ level, facts: { ...facts }, text });
  return { lines, logger: { warn: take("warn"), error: take("error") } };
}

describe("a job that fails", () => {
  it("is logged: each attempt as a warning with the next step, the dead letter as an error", async () => {
    const { lines, logger } = listen();
    const { sluice, queue } = openQueue<number>(sluices, { logger });
    const url = await closedUrl();
    const job = await queue.enqueue(1, {
      key: "acme",
      name: "charge",
      attempts: 2,
      backoff: { baseMs: 1 },
    });
    sluice.worker(queue, () => fetch(url));
    await rejectionOf(job.finished());
    await waitUntil(() => lines.length === 2, "both lines are there");

    const start = `Job ${job.id} (charge, key "acme") of queue "jobs" failed in attempt`;
    const reason = expect.stringMatching(/^fetch failed \(connect ECONNREFUSED/);
    const facts = { queue: "jobs", job: job.id, key: "acme", name: "charge", attempts: 2, reason };
    const cause = expect.objectContaining({ code: "ECONNREFUSED" });
    expect(lines[0]).toMatchObject({ level: "warn", facts: { ...facts, attempt: 1, cause } });
    expect(lines[0]!.text).toMatch(
      /failed in attempt 1 of 2: fetch failed \(connect ECONNREFUSED .*\); tried again in \d ms\.$/,
    );
    expect(lines[1]).toMatchObject({ level: "error", facts: { ...facts, attempt: 2, cause } });
    expect(lines[1]!.text).toMatch(/ in attempt 2 of 2: .*; kept as a dead letter\.$/);
    for (const { text } of lines) expect(text.startsWith(start)).toBe(true);
  });

  it("logs at most ten lines of each kind when a thousand others fail too, and the number left out", async () => {
    const { lines, logger } = listen();
    const { sluice, queue } = openQueue<number>(sluices, { logger });
    await queue.enqueueMany([...Array(100).keys()], { attempts: 2, backoff: { baseMs: 1 } });
    const worker = sluice.worker(queue, async () => {
      throw new Error("no");
    });
    await waitUntil(async () => (await queue.counts()).failed === 100, "all have failed");
    await worker.close();

    for (const level of ["warn", "error"] as const) {
      const all = lines.filter((line) => line.level === level);
      const said = all.filter(({ facts }) => "job" in facts);
      const unsaid = all.reduce((sum, { facts }) => sum + Number(facts["unsaid"] ?? 0), 0);
      expect(said.length).toBeGreaterThanOrEqual(10);
      expect(said.length + unsaid).toBe(100);
      expect(all.length).toBeLessThan(100);
      expect(all.at(-1)!.text).toMatch(/more .* of queue "jobs" were not logged/);
    }
  });

  it("has a reason if the error has no message, and one full stop if the message ends with one", async () => {
    const { lines, logger } = listen();
    const { sluice, queue } = openQueue<string>(sluices, { logger });
    sluice.worker(queue, async ({ data }) => {
      throw new Error(data);
    });
    const jobs = await queue.enqueueMany(["", "Raise it."], { attempts: 1 });
    const errors = await Promise.all(jobs.map((job) => rejectionOf(job.finished())));
    await waitUntil(() => lines.length === 2, "both lines are there");

    const reasons = ["Error without a message", "Raise it"];
    for (const [at, reason] of reasons.entries()) {
      const said = lines.find(({ facts }) => facts["job"] === jobs[at]!.id)!;
      expect(said.text).toContain(` failed in attempt 1 of 1: ${reason}; kept as a dead letter.`);
      expect(String(errors[at])).toContain(` has failed: ${reason}. See queue.failed()`);
    }
    expect((await queue.failed()).map((letter) => letter.reason).toSorted()).toEqual([
      "Error without a message",
      "Raise it.",
    ]);
  });

  it("shows no password of a URL, and stays one line", async () => {
    const { lines, logger } = listen();
    const { sluice, queue } = openQueue<number>(sluices, { logger });
    sluice.worker(queue, async () => {
      const cause = new Error("at http://me:secret@host/");
      throw new Error("first\nsecond http://me:secret@host/", { cause });
    });
    const job = await queue.enqueue(1, { attempts: 1 });
    await rejectionOf(job.finished());
    await waitUntil(() => lines.length === 1, "the line is there");

    expect(JSON.stringify(lines)).not.toContain("secret");
    expect(lines[0]!.text).not.toContain("\n");
  });

  it("is logged on the console of a process that has no logger", async () => {
    const { queue } = openQueue<string>(sluices);
    const job = await queue.enqueue("x", { key: "acme", attempts: 2, backoff: { baseMs: 1 } });
    const args = [inject("redisUrl"), sluices.prefix(), await closedUrl()];
    const script = scripts.start("test/support/processes/workers/failing-worker.ts", { args });
    await rejectionOf(job.finished());
    await waitUntil(() => script.stderr.includes("dead letter"), "it is heard");

    expect(script.stderr).toMatch(
      /\[sluice\] Job \d+ \(key "acme"\) .* attempt 1 of 2: fetch failed \(connect ECONNREFUSED/,
    );
    script.signal("SIGTERM");
    expect(await script.ended).toBe(0);
  });
});
