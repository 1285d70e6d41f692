import type { EnqueueOptions, Queue, QueuedJob, Schedule, Sluice } from "sluice";
import { waitUntil } from "../async/wait-until.ts";
import type { RealSluices } from "../setup/real-sluice.ts";

/** Short, so that many times pass within a test. */
export const EVERY_MS = 100;

type Recurring = Partial<EnqueueOptions>;

/** A queue with a schedule `sync` on it, and what is seen of its runs. */
export interface OpenedSchedule {
  readonly sluice: Sluice;
  readonly queue: Queue<string>;
  readonly declare: (options?: Recurring) => Promise<QueuedJob<string>>;
  readonly schedule: () => Promise<Schedule>;
  /** How many runs wait: planned, due, in a lane, or in the hands of a worker, if none runs. */
  readonly waiting: () => Promise<number>;
  /** Waits until so many times have passed without a run; resolves with the most runs that waited meanwhile. */
  readonly mostWaitingUntilMissed: (missed: number) => Promise<number>;
}

/** With `perKey`, which lets one call pass in an hour, the room of the key `acme` is taken. */
export async function openSchedule(
  sluices: RealSluices,
  { isKeyFull = false, rate = "500/s" }: { isKeyFull?: boolean; rate?: string } = {},
): Promise<OpenedSchedule> {
  const sluice = sluices.open({ logger: { warn: () => {}, error: () => {} } });
  const bucket = sluice.bucket("downstream", {
    rate,
    ...(isKeyFull && { perKey: { rate: "1/h" } }),
  });
  if (isKeyFull) await bucket.draw({ key: "acme" });
  const queue = sluice.queue<string>("jobs", { bucket });
  const schedule = async (): Promise<Schedule> => (await queue.schedules())[0]!;
  const waiting = async (): Promise<number> => {
    const { waiting: due, delayed, active } = await queue.counts();
    return due + delayed + active;
  };
  return {
    sluice,
    queue,
    declare: (options) =>
      queue.enqueue("sync", { every: EVERY_MS, dedupeId: "sync", ...options } as EnqueueOptions),
    schedule,
    waiting,
    async mostWaitingUntilMissed(missed) {
      let most = 0;
      await waitUntil(async () => {
        most = Math.max(most, await waiting());
        return (await schedule()).missed >= missed;
      }, `${missed} runs are missed`);
      return most;
    },
  };
}
