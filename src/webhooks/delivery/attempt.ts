import type { JobContext } from "../../queue/worker/context.ts";
import { Discard } from "../../queue/worker/outcome.ts";
import { readRecord, type EndpointRecord } from "../endpoints/record.ts";
import type { ReadableStore } from "../sending/encoded-bodies.ts";
import { OUR_TRIES, storeLater, type DeliveryJob } from "../sending/jobs.ts";
import type { Delivered } from "./deliver.ts";
import { notDecoded, notSent, type Ending, type EndingParts } from "./ending.ts";
import { contentOf, type RequestContent, type SendRequest } from "./request.ts";

export interface AttemptParts extends EndingParts {
  readonly store: ReadableStore;
  readonly sendRequest: SendRequest;
  readonly ending: Ending;
}

type Running = Pick<JobContext, "signal" | "attempt">;

export function createAttempts(
  parts: AttemptParts,
): (job: DeliveryJob, running: Running) => Promise<void> {
  const { store, queue, sendRequest, ending, options } = parts;

  async function conclude(
    job: DeliveryJob,
    record: EndpointRecord,
    { delivered, isLast }: { readonly delivered: Delivered; readonly isLast: boolean },
  ): Promise<void> {
    const { outcome } = delivered;
    const tried = { ...job, changedAtMs: record.changedAtMs };
    if (outcome === "ours" && !isLast) {
      await ending.end(tried, delivered, "waiting");
      // Throw, so that the queue retries the job. The retry does not count as another attempt at
      // the endpoint.
      throw new Error(ending.reasonFor(tried, record, delivered));
    }
    if (outcome === "blocked") ending.noteBlocked(job, delivered);
    if (outcome === "success") {
      await ending.end(tried, delivered, "delivered");
      return;
    }
    const delayMs = outcome === "ours" ? undefined : ending.nextInMs(job, record, delivered);
    if (delayMs !== undefined) {
      // Pause the endpoint first, if its reply asked for a pause. This job ends last, so that the
      // queue runs the job again if the process dies before.
      const isThere = await ending.end(tried, delivered, "waiting");
      if (!isThere) return;
      const later = { ...job, born: record.born, attempt: job.attempt + 1 };
      await storeLater(queue, later, { delayMs });
      return;
    }
    // No attempt follows. The job becomes a dead letter with this reason, and can be recovered.
    await ending.end(tried, delivered, "failed");
    ending.noteExhausted(tried, delivered);
    throw new Discard(ending.reasonFor(tried, record, delivered));
  }

  return async (job, { signal, attempt: tries }) => {
    const { purpose } = job;
    const begun = await store.begin({
      ...job,
      timeoutMs: purpose === "send" ? options.timeoutMs : 0,
    });
    const { record: text, disabled, type, state, waitMs, nowMs } = begun;
    const record = text === undefined ? undefined : readRecord(text);
    // The endpoint was removed, or replaced by another endpoint with the same id.
    if (record === undefined || (job.born !== undefined && job.born !== record.born)) return;
    // Another message may have the same id by now. Jobs from an older version do not name the copy
    // that they belong to.
    const isSame = job.copy === undefined || job.copy === begun.copy;
    const body = isSame ? begun.body : undefined;
    if (body === undefined)
      throw new Discard("The message is no longer stored, and was not delivered");
    if (purpose === "send" && state === "delivered") return;
    if (disabled !== undefined && purpose !== "replay") {
      const tried = { ...job, copy: begun.copy, changedAtMs: record.changedAtMs };
      await ending.end(tried, notSent(`The endpoint is disabled (${disabled.reason}).`), "failed");
      throw new Discard(`The endpoint is disabled (${disabled.reason}); enable and recover it`);
    }
    if (waitMs > 0) {
      await ending.pauseEndpoint(job, waitMs);
      // The job waits in its lane without a delay, because the endpoint may recover before the
      // pause ends.
      await storeLater(queue, job, { delayMs: 0, isHeld: true });
      return;
    }
    const content = (): RequestContent => contentOf(record, { id: job.message, type, body });
    const delivered =
      begun.unreadable === undefined
        ? await sendRequest(job, record, content(), { nowMs, signal })
        : notDecoded(begun.unreadable);
    await conclude({ ...job, copy: begun.copy }, record, {
      delivered,
      isLast: tries >= OUR_TRIES && !signal.aborted,
    });
  };
}
