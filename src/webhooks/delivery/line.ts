/**
 * One attempt at an ordered endpoint. The attempt sends the message at the head of the line, or
 * several messages as a batch. It removes messages that were delivered or given up. It stores the
 * job of the next step before its own job ends. If another job has already ended the step, the
 * attempt changes nothing.
 */
import { createHash } from "node:crypto";
import type { CodecError } from "../../core/errors.ts";
import type { LineMessage as StoredMessage } from "../../stores/redis/scripts/webhooks/webhooks.ts";
import type { JobContext } from "../../queue/worker/context.ts";
import { Discard } from "../../queue/worker/outcome.ts";
import { readRecord, type EndpointRecord } from "../endpoints/record.ts";
import { OUR_TRIES, storeStep, type LineJob } from "../sending/jobs.ts";
import { batchOf } from "../sending/message.ts";
import type { AttemptParts } from "./attempt.ts";
import type { Delivered } from "./deliver.ts";
import { notDecoded, notSent, type DeliveryState, type Tried } from "./ending.ts";
import { contentOf, isStandard, type RequestContent } from "./request.ts";

/** A message of the line. `unreadable` says why this process cannot decode it. */
type LineMessage = StoredMessage & { readonly unreadable?: CodecError | undefined };

type Running = Pick<JobContext, "signal" | "attempt">;

/** The messages at the head of a line that this attempt sends. */
interface Head {
  readonly record: EndpointRecord;
  /** The attempts of this request, one for each message. */
  readonly tried: readonly Tried[];
  /**
   * The number of line entries that this attempt covers, including entries whose message is no
   * longer stored.
   */
  readonly removing: number;
}

export function createLineAttempts(
  parts: AttemptParts,
): (job: LineJob, running: Running) => Promise<void> {
  const { store, queue, sendRequest, ending, options, logger } = parts;

  /** Ends this step, and stores the job of the next step if messages are pending. */
  async function storeNextStep(
    job: LineJob,
    record: EndpointRecord,
    next: { readonly removing: number; readonly attempt: number; readonly delayMs?: number },
  ): Promise<void> {
    const { tenant, endpoint, step } = job;
    const { removing, attempt, delayMs } = next;
    const following = await store.endStep({ tenant, endpoint, step, leaving: removing, attempt });
    if (following === undefined) return;
    await storeStep(queue, { tenant, endpoint, step: following, most: mostOf(record) }, delayMs);
  }

  /**
   * Stores the job of the step that is next. The process that ended the previous step may have died
   * before it stored this job.
   */
  async function storeCurrentStep({ tenant, endpoint, most }: LineJob): Promise<void> {
    const step = await store.lineStep({ tenant, endpoint });
    if (step !== undefined) await storeStep(queue, { tenant, endpoint, step, most });
  }

  async function endAll(
    { tried }: Head,
    delivered: Delivered,
    state: DeliveryState,
  ): Promise<void> {
    // Count the request only once for the endpoint's health.
    for (const [at, each] of tried.entries()) {
      await ending.end(each, delivered, state, at === tried.length - 1);
    }
  }

  async function giveUp(job: LineJob, head: Head, delivered: Delivered): Promise<never> {
    await endAll(head, delivered, "failed");
    for (const each of head.tried) ending.noteExhausted(each, delivered);
    await storeNextStep(job, head.record, { removing: head.removing, attempt: 1 });
    const [first] = head.tried as [Tried];
    throw new Discard(`${namesIn(head)}: ${ending.reasonFor(first, head.record, delivered)}`);
  }

  /** Ends a message that cannot be decoded, so that the others of its batch can be sent. */
  async function giveUpOne(tried: Tried, unreadable: CodecError): Promise<void> {
    const delivered = notDecoded(unreadable);
    await ending.end(tried, delivered, "failed");
    ending.noteExhausted(tried, delivered);
  }

  async function conclude(
    job: LineJob,
    head: Head,
    { delivered, isLast }: { readonly delivered: Delivered; readonly isLast: boolean },
  ): Promise<void> {
    const { record, tried } = head;
    const [first] = tried as [Tried];
    const { outcome } = delivered;
    if (outcome === "ours" && !isLast) {
      await endAll(head, delivered, "waiting");
      throw new Error(`${namesIn(head)}: ${ending.reasonFor(first, record, delivered)}`);
    }
    if (outcome === "blocked") ending.noteBlocked(job, delivered);
    if (outcome === "success") {
      await endAll(head, delivered, "delivered");
      await storeNextStep(job, record, { removing: head.removing, attempt: 1 });
      return;
    }
    const delayMs = outcome === "ours" ? undefined : ending.nextInMs(first, record, delivered);
    if (delayMs === undefined) return giveUp(job, head, delivered);
    await endAll(head, delivered, "waiting");
    await storeNextStep(job, record, { removing: 0, attempt: first.attempt + 1, delayMs });
  }

  return async (job, { signal, attempt: tries }) => {
    const begun = await store.beginStep({ ...job, timeoutMs: options.timeoutMs });
    if (begun === undefined) return storeCurrentStep(job);
    const { purpose, attempt, by, disabled, waitMs, nowMs } = begun;
    const record = readRecord(begun.record);
    const messages = record.batch === undefined ? begun.messages.slice(0, 1) : begun.messages;
    const { tenant, endpoint } = job;
    const { changedAtMs } = record;
    const removing = messages.length;
    const isKept = ({ body }: LineMessage): boolean => body !== undefined;
    const gone = messages.filter((each) => !isKept(each)).map(({ message }) => message);
    const lost = gone.filter((message) => message !== EXPUNGED);
    const what = `${namesOf(lost)} is no longer stored, and was not delivered`;
    if (gone.length === removing) {
      await storeNextStep(job, record, { removing, attempt: 1 });
      if (lost.length === 0) return;
      throw new Discard(what);
    }
    if (lost.length > 0) logger.warn({ tenant, endpoint, messages: lost }, what);
    const kept = messages.filter(isKept);
    const headOf = (some: readonly LineMessage[]): Head => {
      const tried = some.map(({ message, copy }): Tried => {
        return { tenant, endpoint, message, copy, attempt, purpose, by, changedAtMs };
      });
      return { record, tried, removing };
    };
    const head = headOf(kept);
    const isLast = tries >= OUR_TRIES && !signal.aborted;
    if (purpose === "send" && kept.every(({ state }) => state === "delivered")) {
      return storeNextStep(job, record, { removing, attempt: 1 });
    }
    if (purpose === "send" && disabled !== undefined) {
      const why = `The endpoint is disabled (${disabled.reason}).`;
      await endAll(head, notSent(why), "failed");
      await storeNextStep(job, record, { removing, attempt: 1 });
      throw new Discard(`${namesIn(head)}: ${why} Enable it, and recover the message`);
    }
    if (waitMs > 0) {
      await ending.pauseEndpoint(job, waitMs);
      return storeNextStep(job, record, { removing: 0, attempt });
    }
    const readable = kept.filter(({ unreadable }) => unreadable === undefined);
    // An earlier attempt at the same messages has given up those that had failed by then.
    const undecoded = kept.filter(
      ({ unreadable, state }) => unreadable !== undefined && (attempt === 1 || state !== "failed"),
    );
    const [first] = undecoded;
    if (first !== undefined && (!isLast || readable.length === 0)) {
      const delivered = notDecoded(first.unreadable!);
      return conclude(job, isLast ? headOf(undecoded) : head, { delivered, isLast });
    }
    for (const each of undecoded) await giveUpOne(headOf([each]).tried[0]!, each.unreadable!);
    if (readable.length === 0) return storeNextStep(job, record, { removing, attempt: 1 });
    const delivered = await sendRequest(job, record, contentOfHead(record, readable), {
      nowMs,
      signal,
    });
    return conclude(job, headOf(readable), { delivered, isLast });
  };
}

/** Returns the content of the request: one message as it is, or several messages as a batch. */
function contentOfHead(record: EndpointRecord, messages: readonly LineMessage[]): RequestContent {
  const parts = messages.map((each) => ({ ...each, id: each.message, body: each.body ?? "" }));
  if (record.batch === undefined) return contentOf(record, parts[0]!);
  const ids = parts.map(({ id }) => id).join(" ");
  const digest = createHash("sha256").update(ids).digest("base64url").slice(0, 32);
  const body = batchOf(BATCH_TYPE, parts, isStandard(record));
  return { id: `batch_${digest}`, type: BATCH_TYPE, body };
}

const BATCH_TYPE = "webhook.batch";
/** The line entry that replaces an expunged message (`lua/lib/webhooks/expunge.lua`). */
const EXPUNGED = ".";

function mostOf({ batch = 1 }: EndpointRecord): number {
  return batch;
}

function namesIn({ tried }: Head): string {
  return namesOf(tried.map(({ message }) => message));
}

function namesOf(messages: readonly string[]): string {
  return `Message ${messages.join(", ")}`;
}
