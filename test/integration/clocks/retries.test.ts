import { expect, it } from "vitest";
import { attemptsAt, withWrongClocks } from "../../support/jobs/wrong-clocks.ts";
import type { MemberJob } from "../../support/processes/queue-member.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const HOUR_MS = 3_600_000;

interface Dead {
  readonly id: string;
  readonly failedAtMs: number;
}

withWrongClocks((members) => {
  async function enqueue(job: MemberJob, options: object = {}): Promise<string> {
    return (await members.producer.call<{ id: string }>("enqueue", job, options)).id;
  }

  async function untilDead(id: string): Promise<void> {
    const isDead = async () => (await members.producer.call("job.state", id)) === "failed";
    await waitUntil(isDead, "it is a dead letter");
  }

  it.each([undefined, "acme"])("RetryAfter waits for exactly its time, key %s", async (key) => {
    const name = `again ${key}`;

    await enqueue({ name, retryAfterMs: 700 }, { key });
    await waitUntil(() => attemptsAt(name, members.worker).length === 2, "it is tried again");

    const [first, second] = attemptsAt(name, members.worker);
    expect(second!.atMs - first!.atMs).toBeGreaterThanOrEqual(700);
  });

  it("a failed attempt is repeated, and no other job starts early because of it", async () => {
    const { worker } = members;
    const before = worker.attempts.length;
    const askedAtMs = performance.now();

    await enqueue({ name: "later" }, { delayMs: 1_500 });
    await enqueue({ name: "at once", retryAfterMs: 0 });
    await enqueue({ name: "failing", isFailing: false }, { backoff: { baseMs: 100 } });
    await waitUntil(() => worker.attempts.length === before + 5, "all have run");

    expect(performance.now() - askedAtMs).toBeGreaterThanOrEqual(1_500);
    expect(worker.attempts.at(-1)!.name).toBe("later");
  });

  it("a dead letter shows when it failed, and a filter finds it by that time", async () => {
    const id = await enqueue({ name: "dead", isFailing: true }, { attempts: 1 });
    await untilDead(id);

    const since = (sinceMs: number) => members.producer.call<Dead[]>("failed", { since: sinceMs });

    const found = (await since(Date.now() - HOUR_MS)).find((dead) => dead.id === id);
    expect(Math.abs(found!.failedAtMs - Date.now())).toBeLessThan(HOUR_MS);
    expect(await since(Date.now() + HOUR_MS)).toEqual([]);
  });

  it("a replayed dead letter has its whole maxWaitMs again", async () => {
    const name = "replayed";
    const options = { attempts: 1, maxWaitMs: 4_000 };
    const id = await enqueue({ name, isFailing: true }, options);
    await untilDead(id);

    await members.producer.call("replay", id);

    const attempts = () => attemptsAt(name, members.worker);
    await waitUntil(() => attempts().length > 1, "it is attempted again");
    expect(attempts()).toHaveLength(2);
  });
});
