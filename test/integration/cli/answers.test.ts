import { describe, expect, inject, it } from "vitest";
import { runCli } from "../../support/children/run-cli.ts";
import { pretendWorker } from "../../support/jobs/outlook.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();

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

describe("sluice help", () => {
  it("prints the same as --help", async () => {
    const help = await sluice("help", "buckets");

    expect(help).toMatchObject({ code: 0, err: "" });
    expect(help.out).toBe((await sluice("buckets", "--help")).out);
  });
});

describe("sluice schedule preview", () => {
  const preview = (...args: string[]) => sluice("schedule", "preview", ...args);

  it("prints the next five runs in local time and UTC", async () => {
    const { code, out } = await preview("0 9 * * *", "--tz", "Asia/Tokyo");

    expect(code).toBe(0);
    expect(out.split("\n")[0]).toBe("0 9 * * * in Asia/Tokyo");
    expect(out.match(/09:00:00 GMT\+09:00 +\S+T00:00:00\.000Z/g)).toHaveLength(5);
  });

  it("prints the runs of the schedule with that id", async () => {
    const { queue } = await openQueue();
    await queue.enqueue(1, { cron: "H H * * *", dedupeId: "report" });
    const schedule = await queue.schedule("report");

    const { nextRunsAtMs } = await json<{ nextRunsAtMs: number[] }>(
      "schedule",
      "preview",
      "H H * * *",
      "--id",
      "report",
    );

    expect(nextRunsAtMs).toEqual(schedule!.nextRunsAtMs);
  });

  it.each([
    [["0 9 * *"], "it has 4 fields; give five"],
    [["*/90 * * * *"], "larger than 0 to 59"],
    [["H 9 * * *"], "give the dedupeId of the schedule"],
    [["0 9 * * *", "--tz", "Mars"], "give the name of a time zone"],
    [["0 9 * * *", "--count", "0"], "give a whole number from 1"],
  ])("refuses %j", async (args, why) => {
    const { code, err } = await preview(...args);

    expect(code).toBe(2);
    expect(err).toContain(why);
  });
});

describe("sluice why", () => {
  it("shows the queue position of a job under a limit, and its expected start", async () => {
    const { queue } = await openQueue("1/min");
    await pretendWorker(sluices.prefix(), "charges");
    const jobs = await queue.enqueueMany(
      Array.from({ length: 300 }, (_, index) => index),
      { key: "acme" },
    );

    const { out } = await sluice("why", "charges", jobs[249]!.id);
    const { eta } = await json<{ eta: { position: number } }>("why", "charges", jobs[249]!.id);

    expect(out).toMatch(/; 249 jobs start before it, which is expected to start in 4\.\d h$/m);
    expect(out).not.toContain("until");
    expect(eta.position).toBe(249);
  });

  it("names the limit of a bucket whose calls are jobs, and the number of jobs that wait for it", async () => {
    const { queue, service } = await openQueue("1/min");
    const worker = service.worker(queue, async () => {});
    await queue.enqueueMany(Array.from({ length: 50 }, (_, index) => index));
    await waitUntil(async () => (await queue.counts()).done === 1, "one has started");

    const why = await sluice("why", "stripe");
    const all = await sluice("buckets");

    expect(why.out).toMatch(
      /^4\d jobs of queue charges wait for this bucket\. The oldest waits: .+ \(1\/min\)/m,
    );
    expect(why.out).not.toContain("No call or job waits");
    expect(all.out).toMatch(/^stripe .* 4\d +1\/min +code$/m);
    await worker.close();
  });
});

describe("sluice with an unknown name or id", () => {
  it.each([
    [["why", "charges"], "sluice queue charges, or sluice why charges JOB"],
    [["bucket", "charges"], "sluice queue charges"],
    [["set", "charges", "--rate", "5/s"], "sluice set charges --queue --setting"],
    [["pause", "charges"], "sluice pause charges --queue"],
    [["resume", "charges"], "sluice resume charges --queue"],
    [["undo", "charges"], "sluice undo charges --queue"],
  ])("prints the command that takes a queue's name: %j", async (args, command) => {
    await openQueue();

    const { code, err } = await sluice(...args);

    expect(code).toBe(3);
    expect(err).toContain(`"charges" is a queue: try ${command}`);
  });

  it("prints the command that takes a bucket's name", async () => {
    const { bucket } = await openQueue();
    await bucket.draw();

    const { code, err } = await sluice("queue", "stripe");

    expect(code).toBe(3);
    expect(err).toContain('"stripe" is a bucket: try sluice bucket stripe');
  });

  it.each([
    ["replay", []],
    ["purge", ["--yes"]],
  ])("%ss the others, and exits with 3", async (command, more) => {
    const { queue, service } = await openQueue();
    const job = await queue.enqueue(1, { attempts: 1 });
    const worker = service.worker(queue, async () => Promise.reject(new Error("refused")));
    await rejectionOf(job.finished());
    await worker.close();

    const { code, out, err } = await sluice(command, "charges", job.id, "no-such-id", ...more);

    expect(code).toBe(3);
    expect(out).toMatch(/^1 job was /);
    expect(err).toContain('There is no dead letter "no-such-id" in queue "charges"');
    expect((await queue.counts()).failed).toBe(0);
  });

  it("exits with 5 when there is no change to undo", async () => {
    const { bucket } = await openQueue();
    await bucket.draw();

    const ofBucket = await sluice("undo", "stripe");
    const ofQueue = await sluice("undo", "charges", "--queue");

    for (const undone of [ofBucket, ofQueue]) {
      expect(undone).toMatchObject({ code: 5, out: "", err: "There is no change to undo.\n" });
    }
  });
});

describe("sluice set --drain", () => {
  it("drains a member of a pool, which sluice bucket then shows", async () => {
    const service = sluices.open();
    const pool = service.pool("gpt", { members: { east: { rate: "9/s" }, west: { rate: "9/s" } } });
    await pool.draw();
    await waitUntil(async () => (await service.overview()).buckets.length === 1, "it is listed");

    const set = await sluice("set", "gpt", "--drain", "west", "--reason", "maintenance");
    const shown = await sluice("bucket", "gpt");
    const wrong = await sluice("set", "gpt", "--undrain", "wset");

    expect(set).toMatchObject({ code: 0, err: "" });
    expect(shown.out).toMatch(/^west +drained +0\/1 calls$/m);
    expect(shown.out).toMatch(/^east +takes calls/m);
    expect(wrong.err).toContain("did you mean west?");
    expect((await pool.draw()).member).toBe("east");
  });
});
