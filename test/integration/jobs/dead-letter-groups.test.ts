import { randomUUID } from "node:crypto";
import { describe, expect, inject, it } from "vitest";
import { InvalidOptionError, type Queue } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { runCli } from "../../support/children/run-cli.ts";
import { ask, openServers } from "../../support/server/open-server.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { SILENT } from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const servers = openServers();

/** A queue of dead letters: each job's data is the reason of its failure. */
async function openDead(reasons: readonly (readonly [reason: string, key?: string])[]) {
  const sluice = sluices.open({ logger: SILENT });
  const bucket = sluice.bucket("downstream", { rate: "100000/s" });
  const queue = sluice.queue<string>("charges", { bucket });
  const worker = sluice.worker(
    queue,
    ({ data }) => {
      throw data.startsWith("connect")
        ? Object.assign(new Error(data), { code: "ECONNREFUSED" })
        : new TypeError(data);
    },
    { concurrency: 500 },
  );
  const jobs = reasons.map(([data, key]) => ({ data, key }));
  await queue.enqueueMany(
    jobs.map(({ data }) => data),
    (_data, at) => ({ attempts: 1, key: jobs[at]!.key }),
  );
  await waitUntil(async () => (await queue.counts()).failed === reasons.length, "all are dead");
  await worker.close();
  return { sluice, queue };
}

const MIXED: readonly (readonly [string, string?])[] = [
  ["connect ECONNREFUSED 10.0.0.7:443", "acme"],
  ["connect ECONNREFUSED 10.0.0.9:8443", "umbrella"],
  [`no order ${randomUUID()}`, "acme"],
  ["connect ECONNREFUSED 10.0.0.8:443", "acme"],
  [`no order ${randomUUID()}`],
  ["card was declined"],
];

async function groupOf(queue: Queue<string>, reason: string): Promise<string> {
  const { groups } = await queue.failedGroups();
  return groups.find((each) => each.reason.startsWith(reason))!.group;
}

describe("failedGroups()", () => {
  it("groups dead letters whose errors differ only in numbers and ids, and counts their tenants", async () => {
    const beforeMs = Date.now() - 1_000;
    const { queue } = await openDead(MIXED);

    const { groups, totalGroups, looked, hasMore } = await queue.failedGroups();

    expect({ looked, totalGroups, hasMore }).toEqual({
      looked: 6,
      totalGroups: 3,
      hasMore: false,
    });
    expect(groups.map(({ count, tenants, code }) => ({ count, tenants, code }))).toEqual([
      { count: 3, tenants: 2, code: "ECONNREFUSED" },
      { count: 2, tenants: 1, code: undefined },
      { count: 1, tenants: 0, code: undefined },
    ]);
    expect(groups[0]).toMatchObject({ topTenants: ["acme", "umbrella"], errorName: undefined });
    expect(groups[1]).toMatchObject({ topTenants: ["acme"], errorName: "TypeError" });
    for (const { firstAtMs, lastAtMs } of groups) {
      expect(firstAtMs).toBeGreaterThan(beforeMs);
      expect(lastAtMs).toBeGreaterThanOrEqual(firstAtMs);
    }
    const ofKey = await queue.failedGroups({ key: "umbrella" });
    expect(ofKey.groups.map(({ count }) => count)).toEqual([1]);
  });

  it("reads only the newest dead letters, in batches, and says that there are more", async () => {
    const many = Array.from({ length: 2_300 }, (_, n) => [`failed at ${n}`, `t${n % 7}`] as const);
    const { queue } = await openDead(many);

    const some = await queue.failedGroups({ look: 1_500 });
    const all = await queue.failedGroups({ look: 2_300 });
    const later = await queue.failedGroups({ since: Date.now() + 3_600_000 });

    expect(some).toMatchObject({ looked: 1_500, hasMore: true, groups: [{ count: 1_500 }] });
    expect(all).toMatchObject({ looked: 2_300, hasMore: false, groups: [{ count: 2_300 }] });
    expect(all.groups[0]).toMatchObject({ tenants: 7 });
    expect(all.groups[0]!.topTenants).toHaveLength(5);
    expect(later).toMatchObject({ groups: [], looked: 1_000 });
  });

  it("groups the 100 most frequent errors, and counts the others", async () => {
    const letter = (n: number): string => String.fromCharCode(97 + n);
    const reasons = Array.from(
      { length: 120 },
      (_, n) => [`error ${letter(n % 12)}${letter(Math.floor(n / 12))}`] as const,
    );
    const { queue } = await openDead([...reasons, reasons[7]!]);

    const { groups, totalGroups } = await queue.failedGroups();

    expect(groups).toHaveLength(100);
    expect(groups[0]!.count).toBe(2);
    expect(totalGroups).toBe(120);
  });

  it("replays and purges one group, and leaves the others", async () => {
    const { queue } = await openDead(MIXED);

    const replayed = await queue.replay({ group: await groupOf(queue, "connect") });
    const purged = await queue.purge({ group: await groupOf(queue, "no order") });

    expect({ replayed, purged }).toEqual({ replayed: 3, purged: 2 });
    expect((await queue.failed()).map(({ reason }) => reason)).toEqual(["card was declined"]);
    expect((await queue.counts()).waiting).toBe(3);
    expect(await queue.replay({ group: "0123456789" })).toBe(0);
  });

  it("refuses filters that can never match", async () => {
    const { queue } = await openDead([["card was declined"]]);

    for (const [option, given] of [
      ["group", { group: "x" }],
      ["look", { look: 100_001 }],
      ["limit", { limit: 5 }],
    ] as const) {
      const error = await rejectionOf(queue.failedGroups(given as never));
      expect(error).toBeInstanceOf(InvalidOptionError);
      expect(error).toMatchObject({ option });
    }
  });
});

describe("groups of dead letters for operators", () => {
  it("have a route and a command, and the command line replays and purges them", async () => {
    const { sluice, queue } = await openDead(MIXED);
    await waitUntil(async () => (await sluice.overview()).queues.length === 1, "it is reported");
    const { url } = await servers.open(sluices.open(), { insecureLocal: true });
    const run = async (...args: string[]): Promise<string> => {
      const env = { REDIS_URL: inject("redisUrl"), SLUICE_BY: "ann" };
      const { code, out, err } = await runCli(["--prefix", sluices.prefix(), ...args], env);
      expect({ code, err }).toEqual({ code: 0, err: "" });
      return out;
    };
    const orders = await groupOf(queue, "no order");

    const { json } = await ask(`${url}/api/v1/queues/charges/failed-groups`);
    const text = await run("failed-groups", "charges");
    const replayed = await run("replay", "charges", "--group", orders);
    const declined = await groupOf(queue, "card");
    const purged = await run("purge", "charges", "--group", declined, "--yes");

    expect(json).toMatchObject({ looked: 6, groups: [{ count: 3 }, { count: 2 }, { count: 1 }] });
    expect(text).toMatch(/ECONNREFUSED/);
    expect(text).toContain("acme, umbrella");
    expect(replayed).toContain("2 jobs were put back");
    expect(purged).toContain("1 job was removed");
    expect((await queue.counts()).failed).toBe(3);
  });
});
