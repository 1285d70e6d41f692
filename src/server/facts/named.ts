import type { Queue } from "../../queue/queue.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import type { Bucket } from "../../throttle/bucket.ts";
import { findWebhooks, type FoundWebhooks } from "../../webhooks/index.ts";
import { HttpProblem } from "../problem.ts";

/** @throws {@link HttpProblem} when no process has told of the bucket. */
export async function bucketNamed(sluice: Sluice, name: string): Promise<Bucket> {
  const found = await sluice.find(name);
  if (found !== undefined) return found;
  throw new HttpProblem("ERR_BUCKET_MISSING", `There is no bucket ${JSON.stringify(name)}.`);
}

/** @throws {@link HttpProblem} when no process has told of the queue. */
export async function queueNamed(sluice: Sluice, name: string): Promise<Queue<unknown>> {
  const found = await sluice.findQueue(name);
  if (found !== undefined) return found;
  throw new HttpProblem("ERR_QUEUE_MISSING", `There is no queue ${JSON.stringify(name)}.`);
}

/** @throws {@link HttpProblem} when no process has told of a sender of this name. */
export async function senderNamed(sluice: Sluice, name: string): Promise<FoundWebhooks> {
  const found = await findWebhooks(sluice, name);
  if (found !== undefined) return found;
  throw new HttpProblem(
    "ERR_SENDER_MISSING",
    `There is no sender of webhooks ${JSON.stringify(name)}.`,
  );
}
