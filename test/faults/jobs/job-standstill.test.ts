import { describe, expect, it } from "vitest";
import { children } from "../../support/children/child.ts";
import { jobCalls, startLaneWorkers } from "../../support/jobs/lane-workers.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = 20;
const processes = children();
const sluices = realSluices();
const downstream = useDownstream();

describe("a worker that hangs for longer than its jobs' locks last", () => {
  it.each([
    ["with keys", "acme"],
    ["without keys", undefined],
  ])(
    "stores no late result and starts no burst when it continues, of jobs %s",
    async (_name, key) => {
      const sluice = sluices.open();
      const policy = { rate: `${RATE}/s` };
      const queue = sluice.queue<string>("jobs", { bucket: sluice.bucket("downstream", policy) });
      const done = new Map<string, number>();
      queue.on("done", ({ jobId }) => void done.set(jobId, (done.get(jobId) ?? 0) + 1));
      const names = Array.from({ length: 200 }, (_, index) => `job ${index}`);
      const jobs = await queue.enqueueMany(names, { key });
      const settings = { prefix: sluices.prefix(), policy, url: downstream.url, handlerMs: 400 };
      const [sleeper, other] = startLaneWorkers(processes, 2, { ...settings, lockMs: 1_000 });
      const callsBy = (pid: number): string[] =>
        jobCalls(downstream.arrivals)
          .filter((call) => call.pid === pid)
          .map(({ job }) => job);
      await waitUntil(
        () => callsBy(sleeper!.pid).length > 5 && callsBy(other!.pid).length > 5,
        "both are at work",
      );

      sleeper!.signal("SIGSTOP");
      const beganThere = new Set(callsBy(sleeper!.pid));
      const again = (): string[] => callsBy(other!.pid).filter((job) => beganThere.has(job));
      await waitUntil(() => again().length > 0, "the other does what the first had begun");
      const doneAgain = again();
      const idsAgain = jobs.filter(({ data }) => doneAgain.includes(data)).map(({ id }) => id);
      await waitUntil(() => idsAgain.every((id) => done.has(id)), "that is done");
      sleeper!.signal("SIGCONT");
      await waitUntil(async () => {
        const { active, waiting, delayed } = await queue.counts();
        return active + waiting + delayed === 0;
      }, "all are done");
      const results = await Promise.all(
        idsAgain.map(async (id) => (await queue.job(id))!.finished()),
      );

      expect(new Set(results)).toEqual(new Set([other!.pid]));
      // What it had begun to send when it was stopped arrives when it goes on.
      const underWay = 2;
      expect(downstream.worst(1_000)).toBeLessThanOrEqual(Math.ceil(RATE * 1.01) + underWay);
      expect(new Set(jobCalls(downstream.arrivals).map(({ job }) => job)).size).toBe(200);
      expect([...done.values()].every((times) => times === 1)).toBe(true);
      expect((await queue.counts()).failed).toBe(0);
    },
  );
});
