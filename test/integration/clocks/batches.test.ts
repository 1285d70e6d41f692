import { expect, it } from "vitest";
import { attemptsAt, withWrongClocks } from "../../support/jobs/wrong-clocks.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

interface Enqueued {
  readonly id: string;
}

const BATCH = { size: 10, waitMs: 50 };

withWrongClocks(
  (members) => {
    const enqueue = (name: string, maxWaitMs: number): Promise<Enqueued> =>
      members.producer.call("enqueue", { name }, { maxWaitMs });

    async function untilEnded({ id }: Enqueued): Promise<void> {
      const isEnded = async () =>
        ["done", "failed"].includes(await members.producer.call("job.state", id));
      await waitUntil(isEnded, "it has ended");
    }

    it("a job of a batch is attempted within its maxWaitMs", async () => {
      await untilEnded(await enqueue("soon", 4_000));

      expect(attemptsAt("soon", members.worker)).toHaveLength(1);
    });

    it("a job of a batch expires after its maxWaitMs while the batch waits for its slot", async () => {
      await members.producer.call("bucket.pause");
      const job = await enqueue("late", 300);

      await untilEnded(job);
      await members.producer.call("bucket.resume");

      expect(attemptsAt("late", members.worker)).toEqual([]);
      const [dead] = await members.producer.call<{ reason: string }[]>("failed");
      expect(dead!.reason).toContain("Expired: ");
    });
  },
  { worker: { batch: BATCH } },
);
