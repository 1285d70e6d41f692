import { expect, it } from "vitest";
import { attemptsAt, withWrongClocks } from "../../support/jobs/wrong-clocks.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const MINUTE_MS = 60_000;

withWrongClocks((members) => {
  async function nextAtMs(dedupeId: string): Promise<number> {
    const schedules =
      await members.producer.call<{ dedupeId: string; nextAtMs: number }[]>("schedules");
    return schedules.find((schedule) => schedule.dedupeId === dedupeId)!.nextAtMs;
  }

  it.each([undefined, "acme"])("a job recurs at its interval, key %s", async (key) => {
    const name = `often ${key}`;
    const dedupeId = `often-${key}`;

    await members.producer.call("enqueue", { name }, { every: 500, dedupeId, key });
    await waitUntil(() => attemptsAt(name, members.worker).length >= 4, "it has recurred");
    await members.producer.call("unschedule", dedupeId);

    const [first, , , fourth] = attemptsAt(name, members.worker);
    // Each may begin late, the first too.
    expect(fourth!.atMs - first!.atMs).toBeGreaterThanOrEqual(1_000);
  });

  it("a cron job is due at the next of its times, by Redis' clock", async () => {
    const beforeMs = Date.now();

    await members.producer.call(
      "enqueue",
      { name: "each minute" },
      { cron: "* * * * *", dedupeId: "each-minute" },
    );
    const dueAtMs = await nextAtMs("each-minute");
    await members.producer.call("unschedule", "each-minute");

    expect(dueAtMs % MINUTE_MS).toBe(0);
    expect(dueAtMs).toBeGreaterThan(beforeMs);
    expect(dueAtMs - Date.now()).toBeLessThanOrEqual(MINUTE_MS);
  });

  it("a cron job runs at its times, whatever its worker's clock says", async () => {
    const name = "each second";

    await members.producer.call(
      "enqueue",
      { name },
      { cron: "* * * * * *", dedupeId: "each-second", maxWaitMs: 30_000 },
    );
    await waitUntil(() => attemptsAt(name, members.worker).length >= 3, "it has recurred");
    await members.producer.call("unschedule", "each-second");

    const [first, , third] = attemptsAt(name, members.worker);
    expect(third!.atMs - first!.atMs).toBeGreaterThanOrEqual(1_000);
  });
});
