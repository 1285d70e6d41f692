/**
 * One attempt at an ordered endpoint: what is at the head of its line is sent, alone or as a batch, and leaves it once it was
 * delivered or is given up. The job of the next step is stored before that of this one ends; a step that somebody else has
 * ended moves nothing.
 */
import { createHash } from "node:crypto";
import type { LineMessage } from "../../core/stores/webhooks/store.ts";
import type { JobContext } from "../../queue/worker/context.ts";
import { Discard } from "../../queue/worker/outcome.ts";
import { readRecord, type EndpointRecord } from "../endpoints/record.ts";
import { OUR_TRIES, storeStep, type LineJob } from "../sending/jobs.ts";
import { batchOf } from "../sending/message.ts";
import type { AttemptParts } from "./attempt.ts";
import type { Delivered } from "./deliver.ts";
import { notSent, type State, type Tried } from "./ending.ts";
import { isStandard, toldOf, type Told } from "./request.ts";

type Running = Pick<JobContext, "signal" | "attempt">;

/** What of a line goes now. */
interface Head {
  readonly record: EndpointRecord;
  /** An attempt of each message. */
  readonly tried: readonly Tried[];
  /** How many of the line that is, with those that are no longer kept. */
  readonly leaving: number;
}

export function createLineAttempts(
  parts: AttemptParts,
): (job: LineJob, running: Running) => Promise<void> {
  const { store, queue, sendRequest, ending, options, logger } = parts;

  /** Stores the job of the next step, if anything waits. */
  async function go(
    job: LineJob,
    record: EndpointRecord,
    next: { readonly leaving: number; readonly attempt: number; readonly delayMs?: number },
  ): Promise<void> {
    const { tenant, endpoint, step } = job;
    const { leaving, attempt, delayMs } = next;
    const following = await store.endStep({ tenant, endpoint, step, leaving, attempt });
    if (following === undefined) return;
    await storeStep(queue, { tenant, endpoint, step: following, most: mostOf(record) }, delayMs);
  }

  /** Another step is next. Whoever ended this one may have died, or had no answer, before that was stored. */
  async function goOn({ tenant, endpoint, most }: LineJob): Promise<void> {
    const step = await store.lineStep({ tenant, endpoint });
    if (step !== undefined) await storeStep(queue, { tenant, endpoint, step, most });
  }

  async function endAll({ tried }: Head, delivered: Delivered, state: State): Promise<void> {
    // The endpoint is asked once, whatever went together.
    for (const [at, each] of tried.entries()) {
      await ending.end(each, delivered, state, at === tried.length - 1);
    }
  }

  async function giveUp(job: LineJob, head: Head, delivered: Delivered): Promise<never> {
    await endAll(head, delivered, "failed");
    for (const each of head.tried) ending.noteExhausted(each, delivered);
    await go(job, head.record, { leaving: head.leaving, attempt: 1 });
    const [first] = head.tried as [Tried];
    throw new Discard(`${namesIn(head)}: ${ending.reasonFor(first, head.record, delivered)}`);
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
      await go(job, record, { leaving: head.leaving, attempt: 1 });
      return;
    }
    const delayMs = outcome === "ours" ? undefined : ending.nextInMs(first, record, delivered);
    if (delayMs === undefined) return giveUp(job, head, delivered);
    await endAll(head, delivered, "waiting");
    await go(job, record, { leaving: 0, attempt: first.attempt + 1, delayMs });
  }

  return async (job, { signal, attempt: tries }) => {
    const begun = await store.beginStep(job, options.timeoutMs);
    if (begun === undefined) return goOn(job);
    const { purpose, attempt, by, disabled, waitMs, nowMs } = begun;
    const record = readRecord(begun.record);
    const messages = record.batch === undefined ? begun.messages.slice(0, 1) : begun.messages;
    const { tenant, endpoint } = job;
    const { changedAtMs } = record;
    const leaving = messages.length;
    const isKept = ({ body }: LineMessage): boolean => body !== undefined;
    const gone = messages.filter((each) => !isKept(each)).map(({ message }) => message);
    const lost = gone.filter((message) => message !== EXPUNGED);
    const what = `${namesOf(lost)} is no longer kept, and was not delivered`;
    if (gone.length === leaving) {
      await go(job, record, { leaving, attempt: 1 });
      if (lost.length === 0) return;
      throw new Discard(what);
    }
    if (lost.length > 0) logger.warn({ tenant, endpoint, messages: lost }, what);
    const told = messages.filter(isKept);
    const tried = told.map(({ message, copy }): Tried => {
      return { tenant, endpoint, message, copy, attempt, purpose, by, changedAtMs };
    });
    const head = { record, tried, leaving };
    if (purpose === "send" && told.every(({ state }) => state === "delivered")) {
      return go(job, record, { leaving, attempt: 1 });
    }
    if (purpose === "send" && disabled !== undefined) {
      const why = `The endpoint is disabled (${disabled.why}).`;
      await endAll(head, notSent(why), "failed");
      await go(job, record, { leaving, attempt: 1 });
      throw new Discard(`${namesIn(head)}: ${why} Enable and recover it`);
    }
    if (waitMs > 0) {
      await ending.leaveAlone(job, waitMs);
      return go(job, record, { leaving: 0, attempt });
    }
    const delivered = await sendRequest(job, record, tell(record, told), { nowMs, signal });
    return conclude(job, head, { delivered, isLast: tries >= OUR_TRIES && !signal.aborted });
  };
}

/** What is sent: the message as it is, or several as one. */
function tell(record: EndpointRecord, messages: readonly LineMessage[]): Told {
  const parts = messages.map((each) => ({ ...each, id: each.message, body: each.body ?? "" }));
  if (record.batch === undefined) return toldOf(record, parts[0]!);
  const ids = parts.map(({ id }) => id).join(" ");
  const digest = createHash("sha256").update(ids).digest("base64url").slice(0, 32);
  const body = batchOf(BATCH_TYPE, parts, isStandard(record));
  return { id: `batch_${digest}`, type: BATCH_TYPE, body };
}

const BATCH_TYPE = "webhook.batch";
/** What stands in a line for a message that was expunged (`lua/lib/webhooks/expunge.lua`). */
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
