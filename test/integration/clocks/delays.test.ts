import { expect, it } from "vitest";
import { attemptsAt, withWrongClocks } from "../../support/jobs/wrong-clocks.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

interface Enqueued {
  readonly id: string;
  readonly enqueuedAtMs: number;
}

withWrongClocks((members) => {
  async function enqueue(name: string, options: object = {}): Promise<Enqueued> {
    return members.producer.call("enqueue", { name }, options);
  }

  async function untilBegun(name: string): Promise<void> {
    await waitUntil(() => attemptsAt(name, members.worker).length > 0, `${name} has begun`);
  }

  async function untilEnded({ id }: Enqueued): Promise<void> {
    const isEnded = async () =>
      ["done", "failed"].includes(await members.producer.call("job.state", id));
    await waitUntil(isEnded, "it has ended");
  }

  it.each([undefined, "acme"])("a job waits for exactly its delayMs, key %s", async (key) => {
    const name = `delayed ${key}`;
    const askedAtMs = performance.now();

    await enqueue(name, { delayMs: 1_000, key });
    await untilBegun(name);

    expect(performance.now() - askedAtMs).toBeGreaterThanOrEqual(1_000);
  });

  it("a job waits until its time, by Redis' clock", async () => {
    const atMs = Date.now() + 1_500;

    await enqueue("at", { at: atMs });
    await untilBegun("at");

    expect(Date.now()).toBeGreaterThanOrEqual(atMs);
  });

  it.each([undefined, "acme"])("a job is attempted within its maxWaitMs, key %s", async (key) => {
    const name = `soon ${key}`;

    await untilEnded(await enqueue(name, { maxWaitMs: 4_000, key }));

    expect(attemptsAt(name, members.worker)).toHaveLength(1);
  });

  it.each([undefined, "acme"])("a job expires after its maxWaitMs, key %s", async (key) => {
    const name = `late ${key}`;
    await members.producer.call("pause");
    const job = await enqueue(name, { maxWaitMs: 200, key });
    const expiredAtMs = performance.now() + 250;
    await waitUntil(() => performance.now() > expiredAtMs, "it has expired");

    await members.producer.call("resume");
    await untilEnded(job);

    expect(attemptsAt(name, members.worker)).toEqual([]);
    const [dead] = await members.producer.call<{ reason: string }[]>("failed");
    expect(dead!.reason).toContain("Expired: ");
  });

  it("a job shows when it was enqueued", async () => {
    const { enqueuedAtMs } = await enqueue("now");

    expect(Math.abs(enqueuedAtMs - Date.now())).toBeLessThan(2_000);
  });

  it("a delayed job's eta is the rest of its delay", async () => {
    const { id } = await enqueue("much later", { delayMs: 100_000 });

    const { startsInMs } = await members.producer.call<{ startsInMs: number }>("job.eta", id);

    expect(startsInMs).toBeGreaterThan(30_000);
    expect(startsInMs).toBeLessThanOrEqual(100_001);
  });
});
