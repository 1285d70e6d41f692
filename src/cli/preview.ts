/** The queues whose jobs leave through a bucket: how many jobs wait, and what a change of the bucket would do to them. */
import type { Command } from "commander";
import type { PolicyOptions } from "../core/policy/policy.ts";
import type { JobExplanation } from "../queue/forecast/explain.ts";
import type { Forecast, QueuePreview } from "../queue/forecast/forecast.ts";
import type { Sluice } from "../sluice/create-sluice.ts";
import type { Bucket } from "../throttle/bucket.ts";
import type { BucketOutlook, BucketPreview } from "../throttle/bucket/facts/preview.ts";
import { duration, onOneLine, print, type Io } from "./io.ts";

interface Preview extends BucketPreview {
  readonly bucket: string;
  readonly queues: readonly ({ readonly queue: string } & QueuePreview)[];
}

/** Queues that are looked at: each costs a forecast. */
const MOST_QUEUES = 20;

export async function showPreview(
  command: Command,
  io: Io,
  of: { sluice: Sluice; bucket: Bucket; policy: PolicyOptions | "code" },
): Promise<void> {
  const { sluice, bucket, policy } = of;
  if (policy === "code") {
    const { policy: now } = await bucket.peek();
    const result = { bucket: bucket.name, now, after: "the policy of the code" };
    print(command, io, result, () =>
      onOneLine(`${bucket.name}: ${now} would become that of the code.`),
    );
    return;
  }
  const names = await queuesOf(sluice, bucket.name);
  const [ofBucket, ...queues] = await Promise.all([
    bucket.preview(policy),
    ...names.map(async (queue) => {
      const preview = await (await sluice.findQueue(queue))?.preview(policy);
      return preview === undefined ? [] : [{ queue, ...preview }];
    }),
  ]);
  print(command, io, { bucket: bucket.name, ...ofBucket, queues: queues.flat() }, describe);
}

async function queuesOf(sluice: Sluice, bucket: string): Promise<string[]> {
  const { queues } = await sluice.overview({ limit: 1_000, brief: true });
  return queues
    .flatMap((queue) => (queue.bucket === bucket ? [queue.name] : []))
    .slice(0, MOST_QUEUES);
}

/** The jobs of one queue that are due and wait for a bucket. */
export interface WaitingJobs {
  readonly queue: string;
  readonly waiting: number;
  /** What the oldest of them waits for. */
  readonly why: JobExplanation | undefined;
}

/** The queues whose jobs wait for a bucket, those with the most first. */
export async function jobsWaitingFor(sluice: Sluice, bucket: string): Promise<WaitingJobs[]> {
  const names = await queuesOf(sluice, bucket);
  const found = await Promise.all(
    names.map(async (queue) => {
      const status = await (await sluice.findQueue(queue))?.status();
      return { queue, waiting: status?.jobs.waiting ?? 0, why: status?.oldest?.why };
    }),
  );
  return found
    .filter(({ waiting }) => waiting > 0)
    .toSorted((one, other) => other.waiting - one.waiting);
}

function describe({ bucket, now, after, queues }: Preview): string {
  const lines = [
    `${bucket}: ${now.policy} would become ${after.policy}.`,
    ...(now.waiting === 0
      ? []
      : [`${counted(now.waiting, "caller waits", "callers wait")}: ${goneText(now, after)}.`]),
    ...queues.map(
      (each) =>
        `Queue ${each.queue}: ${counted(each.now.waiting, "job waits", "jobs wait")}: ${goneText(each.now, each.after)}${missedText(each)}.`,
    ),
    "Nothing was changed.",
  ];
  return lines.map(onOneLine).join("\n");
}

type Gone = Pick<BucketOutlook, "goneInMs"> | Pick<Forecast, "goneInMs" | "reason">;

function counted(count: number, one: string, many: string): string {
  return `${count} ${count === 1 ? one : many}`;
}

function goneText(now: Gone, after: Gone): string {
  if (now.goneInMs === undefined && after.goneInMs === undefined) {
    return `it is not known until when${reasonText(after)}`;
  }
  return `gone in ${goneIn(now)} now, in ${goneIn(after)} after the change`;
}

function goneIn(gone: Gone): string {
  return gone.goneInMs === undefined ? `unknown time${reasonText(gone)}` : duration(gone.goneInMs);
}

function reasonText(gone: Gone): string {
  const reason = "reason" in gone ? gone.reason : undefined;
  return reason === undefined ? "" : ` (${reason})`;
}

function missedText({ now, after }: QueuePreview): string {
  if (now.missed.length + after.missed.length === 0) return "";
  return `; ${now.missed.length} miss their deadline, then ${after.missed.length}`;
}
