import { describe, expect, it } from "vitest";
import { children } from "../../support/children/child.ts";
import { startMember } from "../../support/jobs/queue-members.ts";
import { attemptsAt } from "../../support/jobs/wrong-clocks.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const sluices = realSluices();
const processes = children();
const HOUR_MS = 3_600_000;

describe.each([3 * HOUR_MS, -3 * HOUR_MS])("a clock that steps by %i ms", (stepMs) => {
  it("delays no waiting or new job, and starts none early", async () => {
    const prefix = sluices.prefix();
    const producer = await startMember(processes, { prefix });
    const worker = await startMember(processes, { prefix, worker: {} });
    const begun = (name: string) => attemptsAt(name, worker).length > 0;
    const askedAtMs = performance.now();

    await producer.call("enqueue", { name: "waiting" }, { delayMs: 1_000 });
    await producer.call("shiftClock", stepMs);
    await worker.call("shiftClock", stepMs);
    await producer.call("enqueue", { name: "urgent" }, { maxWaitMs: 5_000, key: "acme" });
    await producer.call("enqueue", { name: "later", retryAfterMs: 300 }, { delayMs: 1_500 });
    await waitUntil(() => begun("waiting"), "the one that waited has begun");
    const waitedMs = performance.now() - askedAtMs;
    await waitUntil(() => attemptsAt("later", worker).length === 2, "the last has begun again");

    expect(waitedMs).toBeGreaterThanOrEqual(1_000);
    expect(performance.now() - askedAtMs).toBeGreaterThanOrEqual(1_800);
    expect(attemptsAt("urgent", worker)).toHaveLength(1);
    const [first, again] = attemptsAt("later", worker);
    expect(again!.atMs - first!.atMs).toBeGreaterThanOrEqual(300);
  });
});

describe.each([3 * HOUR_MS, -3 * HOUR_MS])(
  "a worker that dies with its clock off by %i ms",
  (shiftMs) => {
    it("leaves its job to a worker whose clock is off in the other direction", async () => {
      const prefix = sluices.prefix();
      const worker = { lockMs: 1_000 };
      const producer = await startMember(processes, { prefix });
      const dying = await startMember(processes, { prefix, worker, shiftMs });
      await producer.call("enqueue", { name: "lost", takesMs: 60_000 }, { maxWaitMs: 30_000 });
      await waitUntil(() => dying.attempts.length > 0, "it has begun");

      dying.signal("SIGKILL");
      const next = await startMember(processes, { prefix, worker, shiftMs: -shiftMs });
      await waitUntil(() => next.attempts.length > 0, "another has begun it again");

      expect(next.attempts[0]).toMatchObject({ name: "lost", attempt: 1 });
    });
  },
);
