/** The routes through which programs in any language run the jobs of a queue. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { InvalidOptionError } from "../../../core/errors.ts";
import type { InsightStore } from "../../../core/stores/insight/store.ts";
import type { HandedOutcome } from "../../../queue/worker/held/handed-over.ts";
import type { Receipt } from "../../../queue/worker/held/receipt.ts";
import { assertProgress } from "../../../queue/worker/context.ts";
import { Discard, RetryAfter } from "../../../queue/worker/outcome.ts";
import type { SluiceParts } from "../../../sluice/parts.ts";
import type { SettledCost } from "../../../throttle/call-options.ts";
import { accessOf } from "../../access/access.ts";
import { HttpProblem, problemOf } from "../../problem.ts";
import type { Callers } from "../caller.ts";
import type { FoundBuckets } from "../found-buckets.ts";
import { PROBLEM, QUEUE_PARAMS } from "../schemas.ts";
import type { GivenSlots } from "../slots.ts";
import { createTakenJobs, receiptIn, type TakenJobs } from "./taken-jobs.ts";
import {
  COMPLETE,
  ENDED,
  EXTEND,
  FAIL,
  LOG,
  PROGRESS,
  STATES,
  TAKE,
  TAKEN,
} from "./work-schemas.ts";

interface OfQueue {
  readonly Params: { readonly queue: string };
}

interface AskedTake {
  readonly max?: number;
  readonly waitMs?: number;
  readonly lockMs?: number;
  readonly worker?: string;
}

interface Completed {
  readonly receipt: string;
  readonly result?: unknown;
  readonly cost?: SettledCost;
}

interface Failed {
  readonly receipt: string;
  readonly error:
    | string
    | { readonly message: string; readonly code?: string; readonly status?: number };
  readonly retryAfterMs?: number;
  readonly discard?: boolean;
  readonly cost?: SettledCost;
}

interface Extended {
  readonly receipt?: string;
  readonly receipts?: readonly string[];
  readonly lockMs?: number;
}

interface Progressed {
  readonly receipt: string;
  readonly value: unknown;
}

interface Logged {
  readonly receipt: string;
  readonly lines: readonly string[];
}

/** One job, or several in one request. */
type OneOrMany<One> = One | { readonly jobs: readonly One[] };

export interface WorkParts {
  readonly found: FoundBuckets;
  readonly slots: GivenSlots;
  readonly callers: Callers;
  readonly insight: Pick<InsightStore, "queue">;
  readonly start: SluiceParts["startHandOver"];
}

const LOCK_MS = 30_000;
const WHERE = "the body of the request";
const JSON_TYPE = "application/json; charset=utf-8";

export function workRoutes(app: FastifyInstance, parts: WorkParts): void {
  const { found, slots, callers, insight, start } = parts;
  const opening = new Map<string, Promise<TakenJobs>>();

  async function open(name: string): Promise<TakenJobs> {
    const queue = await found.queue(name);
    if ((await insight.queue(name))?.declared.isSender === true) {
      const detail = `Queue ${JSON.stringify(name)} belongs to a webhook sender, which delivers its jobs itself. Take the jobs of another queue.`;
      throw new HttpProblem("ERR_NOT_SUPPORTED", detail);
    }
    return createTakenJobs({ queue, slots, start, onIdle: () => void forget(name) });
  }

  function jobsOf({ params }: FastifyRequest<OfQueue>): Promise<TakenJobs> {
    const { queue: name } = params;
    const known = opening.get(name);
    if (known !== undefined) return known;
    const made = open(name);
    opening.set(name, made);
    made.catch(() => opening.delete(name));
    return made;
  }

  async function forget(name: string): Promise<void> {
    const jobs = opening.get(name);
    opening.delete(name);
    await (await jobs)?.close();
  }

  async function take(
    request: FastifyRequest<OfQueue & { readonly Body: AskedTake | null }>,
    reply: FastifyReply,
  ): Promise<object> {
    const { max = 1, waitMs = 0, lockMs = LOCK_MS, worker } = request.body ?? {};
    const client = worker ?? accessOf(request).name ?? request.ip;
    const caller = callers.of(reply);
    const jobs = await (await jobsOf(request)).take({ max, waitMs, lockMs, client }, caller);
    // Use a plain serializer, because the data of jobs may be any JSON.
    void reply.type(JSON_TYPE).serializer((value: unknown) => JSON.stringify(value));
    return { jobs };
  }

  /** Ends one job, or each of several by itself. */
  async function end<One extends { readonly receipt: string; readonly cost?: SettledCost }>(
    request: FastifyRequest<OfQueue>,
    body: OneOrMany<One>,
    outcomeOf: (one: One, receipt: Receipt) => HandedOutcome,
  ): Promise<object> {
    const endOne = async (one: One, option: string): Promise<object> => {
      const receipt = receiptIn(option, one.receipt);
      const outcome = outcomeOf(one, receipt);
      const state = await (await jobsOf(request)).settle(receipt, outcome, one.cost);
      return { id: receipt.id, state };
    };
    if (!("jobs" in body)) return endOne(body, "receipt");
    assertOnly(body, "jobs");
    const results = await Promise.all(
      body.jobs.map((one, index) =>
        endOne(one, `jobs.${index}.receipt`).catch((error: unknown) => ({
          problem: problemOf(error),
        })),
      ),
    );
    return { results };
  }

  async function extend(request: FastifyRequest<OfQueue & { readonly Body: Extended }>) {
    const { receipt, receipts, lockMs = LOCK_MS } = request.body;
    if (receipts !== undefined && receipt !== undefined)
      assertOnly({ receipts, receipt }, "receipts");
    const texts = receipts ?? [receipt!];
    const read = texts.map((text, index) =>
      receiptIn(receipts === undefined ? "receipt" : `receipts.${index}`, text),
    );
    const states = await (await jobsOf(request)).extend(read, lockMs);
    return { jobs: read.map(({ id }, index) => ({ id, state: states[index] })) };
  }

  /** Writes to one job, or to each of several. Nothing is written if one of them can never work. */
  async function note<One extends { readonly receipt: string }>(
    request: FastifyRequest<OfQueue>,
    body: OneOrMany<One>,
    writerOf: (one: One, at: string) => Parameters<TakenJobs["note"]>[1],
  ): Promise<object> {
    const isMany = "jobs" in body;
    if (isMany) assertOnly(body, "jobs");
    const ones = isMany ? body.jobs : [body];
    const read = ones.map((one, index) => {
      const at = isMany ? `jobs.${index}.` : "";
      return { receipt: receiptIn(`${at}receipt`, one.receipt), write: writerOf(one, at) };
    });
    const taken = await jobsOf(request);
    const jobs = read.map(async ({ receipt, write }) => {
      return { id: receipt.id, state: await taken.note(receipt, write) };
    });
    return { jobs: await Promise.all(jobs) };
  }

  const common = (summary: string, body: object, answer: object) => ({
    config: { needs: "work", queue: "queue" } as const,
    schema: { summary, params: QUEUE_PARAMS, body, response: { 200: answer, default: PROBLEM } },
  });
  app.post<OfQueue & { Body: AskedTake | null }>(
    "/v1/queues/:queue/take",
    common("Takes jobs that may start now, each with its slot", TAKE, TAKEN),
    take,
  );
  app.post<OfQueue & { Body: Extended }>(
    "/v1/queues/:queue/extend",
    common("Renews the locks of taken jobs, for lockMs from now", EXTEND, STATES),
    extend,
  );
  app.post<OfQueue & { Body: OneOrMany<Progressed> }>(
    "/v1/queues/:queue/progress",
    common("Stores how far taken jobs are", PROGRESS, STATES),
    async (request) =>
      note(request, request.body, ({ value }, at) => {
        assertProgress(value, { where: WHERE, option: `${at}value` });
        return ({ progress }) => progress(value as object);
      }),
  );
  app.post<OfQueue & { Body: OneOrMany<Logged> }>(
    "/v1/queues/:queue/log",
    common("Stores log lines of taken jobs", LOG, STATES),
    async (request) =>
      note(request, request.body, ({ lines }) => async ({ log }) => {
        await Promise.all(lines.map((line) => log(line)));
      }),
  );
  app.post<OfQueue & { Body: OneOrMany<Completed> }>(
    "/v1/queues/:queue/complete",
    common("Ends taken jobs as done", COMPLETE, ENDED),
    async (request) => end(request, request.body, ({ result }) => ({ result })),
  );
  app.post<OfQueue & { Body: OneOrMany<Failed> }>(
    "/v1/queues/:queue/fail",
    common("Ends attempts of taken jobs as failed", FAIL, ENDED),
    async (request) =>
      end(request, request.body, (failed, { slotId }) => ({
        thrown: thrownBy(failed, slotId !== undefined),
      })),
  );
  app.addHook("onClose", async () => {
    await Promise.all([...opening.keys()].map((name) => forget(name).catch(() => undefined)));
  });
}

/** @throws {@link InvalidOptionError} when a request has more than the list of its jobs. */
function assertOnly(body: object, list: string): void {
  const option = Object.keys(body).find((name) => name !== list);
  if (option === undefined) return;
  const where = WHERE;
  const remedy = `give it in each of ${list}, or leave out ${list}`;
  throw new InvalidOptionError({ where, option, value: Reflect.get(body, option), remedy });
}

/** The statuses of responses that ask to wait. */
const ASKS_TO_WAIT: ReadonlySet<number | undefined> = new Set([429, 503]);

/**
 * Builds the error that a handler would have thrown. With the status of a refusal, the bucket cools down for the given
 * time, as after a refused call. That needs the slot of the attempt.
 *
 * @throws {@link InvalidOptionError} when the request both discards the job and names a retry time.
 */
function thrownBy({ error, retryAfterMs, discard = false }: Failed, hasSlot: boolean): Error {
  const { message, ...facts } = typeof error === "string" ? { message: error } : error;
  if (discard && retryAfterMs !== undefined) {
    const where = WHERE;
    const remedy = "give it, or discard: true, which ends the job";
    throw new InvalidOptionError({ where, option: "retryAfterMs", value: retryAfterMs, remedy });
  }
  if (discard) return new Discard(message);
  const { status } = facts as { readonly status?: number };
  if (retryAfterMs === undefined) return Object.assign(new Error(message), facts);
  if (!hasSlot || !ASKS_TO_WAIT.has(status)) {
    const waiting = Object.assign(new RetryAfter(retryAfterMs), facts);
    waiting.message = message;
    return waiting;
  }
  const headers = { "retry-after-ms": String(retryAfterMs) };
  return Object.assign(new Error(message), facts, { headers });
}
