import { describe, expect, inject, it } from "vitest";
import { Redis } from "ioredis";
import type { EnqueueOptions, JobContext, JobGroup, Queue, QueuedJob, Sluice } from "sluice";
import { linkJobs } from "../../../src/queue/enqueue/parents.ts";
import { createFlows } from "../../../src/queue/manage/flows.ts";
import { createRedisFlows } from "../../../src/stores/redis/queue/store.ts";
import { deferred, type Deferred } from "../../support/async/deferred.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();

type TextQueue = Queue<string, unknown, string>;

interface Opened {
  readonly sluice: Sluice;
  readonly charges: TextQueue;
  readonly mails: TextQueue;
  /** The queue of the final jobs. */
  readonly totals: TextQueue;
}

interface Worked extends Opened {
  /** The data of the jobs that ran, in order. */
  readonly runs: string[];
  /** The jobs whose handlers fail. */
  readonly failing: Set<string>;
  /** The jobs whose handlers wait. They also end once they are cancelled. */
  readonly held: Map<string, Deferred>;
}

function open(): Opened {
  const sluice = sluices.open();
  const bucket = sluice.bucket("b", { rate: "2000/s" });
  const queue = (name: string): TextQueue => sluice.queue(name, { bucket });
  return { sluice, charges: queue("charges"), mails: queue("mails"), totals: queue("totals") };
}

function work(): Worked {
  const opened = open();
  const runs: string[] = [];
  const failing = new Set<string>();
  const held = new Map<string, Deferred>();
  const handle = async ({ data }: { data: string }, { parents, signal }: JobContext) => {
    runs.push(data);
    const hold = held.get(data)?.promise;
    if (hold !== undefined) {
      const aborted = new Promise((resolve) => signal.addEventListener("abort", resolve));
      await Promise.race([hold, aborted]);
    }
    if (failing.has(data)) throw new Error(`${data} is refused`);
    return data === "final" ? (await parents()).map(({ id: _id, ...parent }) => parent) : data;
  };
  for (const queue of [opened.charges, opened.mails, opened.totals])
    opened.sluice.worker(queue, handle);
  return { ...opened, runs, failing, held };
}

interface Stored {
  readonly final: QueuedJob<unknown>;
  /** The job of the second queue. */
  readonly mail: QueuedJob<string, unknown>;
  readonly group: JobGroup<string, unknown, string, QueuedJob<unknown>>;
}

/** Stores a group with the job "charge" of one queue, and the job "mail" of another queue. */
async function storeGroup(
  { charges, mails, totals }: Opened,
  onParentFailure: EnqueueOptions["onParentFailure"],
): Promise<Stored> {
  const options = { attempts: 1 } as const;
  const then = { queue: totals, data: "final", options: { onParentFailure } };
  const group = await charges.enqueueGroup(["charge"], { then, options, open: true });
  const [mail] = await mails.group(group.final).add(["mail"], options);
  return { final: group.final, mail: mail!, group };
}

async function storeClosedGroup(...args: Parameters<typeof storeGroup>): Promise<Stored> {
  const stored = await storeGroup(...args);
  await stored.group.close();
  return stored;
}

const countOf = (runs: readonly string[], name: string): number =>
  runs.filter((run) => run === name).length;

/** Runs another job after all messages that could start the final job. Returns how often the final job has run. */
async function finalRuns({ totals, mails, runs }: Worked): Promise<number> {
  const probe = await mails.enqueue("probe");
  await (await totals.enqueue("probe", { after: [probe] })).finished();
  return countOf(runs, "final");
}

const done = { state: "done", isResultTooLong: false, reason: undefined };
const charged = { ...done, queue: "charges", result: "charge" };
const mailed = { ...done, queue: "mails", result: "mail" };

describe("a replay of a failed job of the group's second queue", () => {
  it("starts the final job once, although the job fails again first", async () => {
    const worked = work();
    const { mails, failing, totals } = worked;
    failing.add("mail");
    const { final, mail } = await storeClosedGroup(worked, "fail");
    for (const isLast of [false, true]) {
      expect(await rejectionOf(final.finished())).toMatchObject({ code: "ERR_JOB_FAILED" });
      await waitUntil(async () => (await mail.state()) === "failed", "the mail has failed");
      await waitUntil(async () => (await final.state()) === "failed", "the final job has failed");
      expect(await totals.replay({})).toBe(0);
      await mails.pause();
      expect(await mails.replay(mail.id)).toBe(1);
      expect(await final.state()).toBe("delayed");
      if (isLast) failing.clear();
      await mails.resume();
    }

    expect(await final.finished()).toEqual([charged, mailed]);
    expect(await finalRuns(worked)).toBe(1);
    expect(countOf(worked.runs, "mail")).toBe(3);
  });

  it("waits for the end of the group's other jobs", async () => {
    const worked = work();
    const { mails, charges, failing, held } = worked;
    failing.add("mail").add("charge");
    const { final, mail } = await storeClosedGroup(worked, "fail");
    await waitUntil(async () => (await charges.counts()).failed === 1, "the charge has failed");
    await waitUntil(async () => (await mails.counts()).failed === 1, "the mail has failed");
    await waitUntil(async () => (await final.state()) === "failed", "the final job has failed");
    failing.clear();
    held.set("charge", deferred());

    const other = open();
    const replays = [other.charges.replay({}), other.mails.replay({}), mails.replay(mail.id)];
    await Promise.all(replays);
    await waitUntil(async () => (await mails.counts()).done === 1, "the mail is done");
    await waitUntil(() => countOf(worked.runs, "charge") === 2, "the charge runs again");
    expect(await final.state()).toBe("delayed");
    held.get("charge")!.resolve();

    expect(await final.finished()).toEqual([charged, mailed]);
    expect(await finalRuns(worked)).toBe(1);
  });

  it("does not start the final job while the group is open", async () => {
    const worked = work();
    const { mails, failing } = worked;
    failing.add("mail");
    const { final, mail, group } = await storeGroup(worked, "fail");
    expect(await rejectionOf(final.finished())).toMatchObject({ code: "ERR_JOB_FAILED" });
    await waitUntil(async () => (await final.state()) === "failed", "the final job has failed");

    failing.clear();
    await mails.replay(mail.id);
    await mail.finished();
    await waitUntil(async () => (await mails.counts()).done === 1, "the mail is done");
    await mails.group(final).add(["late"]);
    await waitUntil(async () => (await mails.counts()).done === 2, "the late mail is done");
    expect(await finalRuns(worked)).toBe(0);
    expect(await final.explain()).toMatchObject({ waitsFor: "parents", isGroupOpen: true });
    await group.close();

    expect(await final.finished()).toEqual([charged, mailed, { ...mailed, result: "late" }]);
    expect(await finalRuns(worked)).toBe(1);
  });

  it("does not start a final job that was cancelled because of it", async () => {
    const worked = work();
    const { mails, failing } = worked;
    failing.add("mail");
    const { final, mail } = await storeClosedGroup(worked, "skip");
    expect(await rejectionOf(final.finished())).toMatchObject({ code: "ERR_JOB_CANCELLED" });
    await waitUntil(async () => (await mail.state()) === "failed", "the mail has failed");

    failing.clear();
    expect(await mails.replay(mail.id)).toBe(1);
    await waitUntil(async () => (await mails.counts()).done === 1, "the mail is done");
    expect(await finalRuns(worked)).toBe(0);
  });

  it("does not start a final job again that has run although the job failed", async () => {
    const worked = work();
    const { mails, failing } = worked;
    failing.add("mail");
    const { final, mail } = await storeClosedGroup(worked, "run");
    const refused = { ...mailed, state: "failed", result: undefined, reason: "mail is refused" };
    expect(await final.finished()).toEqual([charged, refused]);

    failing.clear();
    expect(await mails.replay(mail.id)).toBe(1);
    await waitUntil(async () => (await mails.counts()).done === 1, "the mail is done");
    expect(await finalRuns(worked)).toBe(1);
  });
});

describe("a cancelled job of the group's second queue", () => {
  it.each(["fail", "skip"] as const)(
    "cancels a final job whose onParentFailure is %s, if the job waits",
    async (onParentFailure) => {
      const opened = open();
      const { final, mail } = await storeClosedGroup(opened, onParentFailure);
      expect(await mail.cancel()).toBe(true);
      expect(await rejectionOf(final.finished())).toMatchObject({ code: "ERR_JOB_CANCELLED" });
      const worked = work();
      await waitUntil(() => worked.runs.includes("charge"), "the other job has run");
      expect(await finalRuns(worked)).toBe(0);
      expect(await final.state()).toBe(undefined);
    },
  );

  it("lets a final job run that runs anyway", async () => {
    const opened = open();
    const { final, mail, group } = await storeGroup(opened, "run");
    expect(await mail.cancel()).toBe(true);
    const worked = work();
    await waitUntil(async () => (await worked.charges.counts()).done === 1, "the charge is done");
    expect(await finalRuns(worked)).toBe(0);
    await group.close();
    const cancelled = { ...mailed, state: "cancelled", result: undefined };
    expect(await final.finished()).toEqual([charged, cancelled]);
    expect(await finalRuns(worked)).toBe(1);
  });

  it.each([
    ["fail", "ERR_JOB_FAILED", 1],
    ["skip", "ERR_JOB_CANCELLED", 0],
  ] as const)(
    "counts as failed if it runs, for a final job whose onParentFailure is %s",
    async (onParentFailure, code, count) => {
      const worked = work();
      const { mails, held, runs, failing } = worked;
      held.set("mail", deferred());
      const { final, mail } = await storeClosedGroup(worked, onParentFailure);
      await waitUntil(() => runs.includes("mail"), "the mail runs");
      failing.add("mail");
      expect(await mail.cancel()).toBe(true);
      expect(await rejectionOf(final.finished())).toMatchObject({ code });
      await waitUntil(async () => (await mail.state()) === "failed", "the mail has failed");
      failing.clear();
      held.clear();

      expect(await mails.replay(mail.id)).toBe(1);
      await waitUntil(async () => (await mails.counts()).done === 1, "the mail is done");
      expect(await finalRuns(worked)).toBe(count);
    },
  );
});

describe("a group that is cancelled while jobs of two queues run", () => {
  it("lets the jobs end, never starts the final job, and leaves nothing in Redis", async () => {
    const worked = work();
    const { held, runs, charges, mails, totals } = worked;
    held.set("mail", deferred()).set("charge", deferred());
    const { final, group } = await storeGroup(worked, "run");
    await waitUntil(() => runs.includes("mail") && runs.includes("charge"), "both jobs run");

    expect(await final.cancel()).toBe(true);
    expect(await rejectionOf(final.finished())).toMatchObject({ code: "ERR_JOB_CANCELLED" });
    const refused = [
      () => group.add(["late"]),
      () => mails.group(final).add(["late"]),
      () => group.close(),
    ];
    for (const act of refused)
      expect(await rejectionOf(act())).toMatchObject({ code: "ERR_GROUP_CLOSED" });
    for (const { resolve } of held.values()) resolve();
    await waitUntil(async () => (await mails.counts()).done === 1, "the mail is done");
    await waitUntil(async () => (await charges.counts()).done === 1, "the charge is done");

    const redis = new Redis(inject("redisUrl"));
    const countKept = async (): Promise<number> => {
      const keys = await redis.keys(`${totals.stored.prefix}:*:flow:*`);
      const ttls = await Promise.all(keys.map((key) => redis.pttl(key)));
      return ttls.filter((ms) => ms === -1 || ms > 60_000).length;
    };
    await waitUntil(async () => (await countKept()) === 0, "all keys of the group expire");
    redis.disconnect();
    expect(await finalRuns(worked)).toBe(0);
  });

  it("can be stored again with the same ids", async () => {
    const worked = work();
    const { held, runs, charges, totals, mails } = worked;
    held.set("charge", deferred());
    const store = async (): Promise<QueuedJob<unknown>> => {
      const then = { queue: totals, data: "final", options: { id: "final" } };
      const options = { id: "charge" };
      const group = await charges.enqueueGroup(["charge"], {
        then,
        options: () => options,
        open: true,
      });
      await mails.group(group.final).add(["mail"], () => ({ id: "mail" }));
      await group.close();
      return group.final;
    };
    const first = await store();
    await waitUntil(() => runs.includes("charge"), "the charge runs");
    await first.cancel();
    const second = await store();
    expect(second.isNew).toBe(true);
    held.get("charge")!.resolve();

    expect(await second.finished()).toEqual([charged, mailed]);
    expect(await finalRuns(worked)).toBe(1);
    expect(runs.toSorted()).toEqual(["charge", "final", "mail", "probe", "probe"]);
  });

  it("keeps the result of a job that is added again while its end is reported", async () => {
    const worked = work();
    const { mails, totals } = worked;
    await (await mails.enqueue("mail", { id: "mail" })).finished();
    await waitUntil(async () => (await mails.counts()).done === 1, "the mail is done");
    const redis = new Redis(inject("redisUrl"), { lazyConnect: true });
    const store = createRedisFlows(redis, sluices.prefix());
    // What is left of an earlier group.
    const listed = { queue: "mails", children: [{ id: "mail", child: "totals:final" }] };
    await store.awaitParents(listed);
    const hasReleased = deferred();
    const mayForget = deferred();
    const slow = createFlows(async () => ({
      ...store,
      async forgetChildren(about) {
        hasReleased.resolve();
        await mayForget.promise;
        return store.forgetChildren(about);
      },
    }));

    const then = { queue: totals, data: "final", options: { id: "final" } };
    const group = await mails.enqueueGroup([], { then, open: true });
    const reported = slow.settle("mails", ["mail"]);
    await hasReleased.promise;
    const parts = { queue: "mails", flows: createFlows(async () => store) };
    const [entry] = [{ options: { id: "mail" }, final: { queue: "totals", id: "final" } }];
    const { settle } = await linkJobs({ ...parts, weightsOf: () => undefined }, [entry]);
    await store.awaitParents(listed);
    mayForget.resolve();
    await reported;
    await settle();

    const { final } = group;
    expect(await final.flow()).toMatchObject({ awaited: { count: 0 }, ended: { count: 1 } });
    await group.close();
    redis.disconnect();
    expect(await final.finished()).toEqual([mailed]);
    expect(await finalRuns(worked)).toBe(1);
  });
});

it("a group of an ordered key can have its final job in the same queue", async () => {
  const sluice = sluices.open();
  const bucket = sluice.bucket("b", { rate: "2000/s" });
  const queue = sluice.queue<string>("ordered", { bucket, ordered: true });
  const runs: string[] = [];
  sluice.worker(queue, ({ data }) => void runs.push(data));
  const options = { key: "acme" };

  const group = queue.enqueueGroup(["1", "2"], { options, then: { data: "final", options } });
  const later = await queue.enqueue("3", options);
  await Promise.all([later.finished(), (await group).final.finished()]);

  expect(runs.filter((run) => run !== "final")).toEqual(["1", "2", "3"]);
});
