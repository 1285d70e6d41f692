/**
 * The jobs of one queue that clients take and run. A worker of this process draws their slots, and hands a job over only
 * while a client waits for one. All that ends a job is in its receipt and in Redis, so any server of the fleet accepts
 * the receipt, also after the server that gave it has ended.
 */
import { reasonOf } from "../../../core/describe.ts";
import { InvalidOptionError } from "../../../core/errors.ts";
import type { Job } from "../../../queue/job.ts";
import type { Queue } from "../../../queue/queue.ts";
import type { JobContext, OwnedJobContext } from "../../../queue/worker/context.ts";
import type { EndedAs, HandedOutcome, LockState } from "../../../queue/worker/held/handed-over.ts";
import {
  limitFrom,
  readReceipt,
  writeReceipt,
  type Receipt,
} from "../../../queue/worker/held/receipt.ts";
import { JobCancelledError, JobLostError } from "../../../queue/errors.ts";
import { HandOver } from "../../../queue/worker/outcome.ts";
import type { OwnedWorker } from "../../../queue/worker/worker.ts";
import type { HandOverParts, SluiceParts } from "../../../sluice/parts.ts";
import type { ClientActivity } from "../../../sluice/workers.ts";
import type { SettledCost } from "../../../throttle/call-options.ts";
import type { OwnedBucket } from "../../../throttle/bucket.ts";
import { markWithoutCalls } from "../../../throttle/slot/job-slot.ts";
import type { DrawnSlot } from "../../../throttle/slot/slot.ts";
import { HttpProblem } from "../../problem.ts";
import type { Caller } from "../caller.ts";
import { giveBack } from "../draws.ts";
import type { GivenSlots } from "../slots.ts";
import { createTakers, type Offer } from "./takers.ts";

/** What a client asks for. */
interface TakeRequest {
  readonly max: number;
  readonly waitMs: number;
  readonly lockMs: number;
  /** The name of the client, for operators. */
  readonly client: string;
}

/** A job in a response. */
type TakenJob = Omit<Job<unknown>, "result" | "endedAtMs" | "startByMs" | "startedAtMs"> & {
  /** Proves that its holder may extend and end the job. */
  readonly receipt: string;
  readonly attempt: number;
  /** How long the lock lasts unless it is extended, in ms. */
  readonly lockMs: number;
  readonly slot: { readonly bucket: string; readonly atMs: number; readonly hasLease: boolean };
};

export interface TakenJobs {
  take(request: TakeRequest, caller: Caller): Promise<readonly TakenJob[]>;
  /** Resolves with what became of each job, in order. */
  extend(receipts: readonly Receipt[], lockMs: number): Promise<readonly LockState[]>;
  /** Stores log lines or the progress of a job. Resolves with what became of the job. */
  note(
    receipt: Receipt,
    write: (context: Pick<JobContext, "log" | "progress">) => Promise<void>,
  ): Promise<LockState>;
  /** Stores how a job ended, books its cost if there is one, and ends its lease. Throws as `HandedOver.settle` does. */
  settle(receipt: Receipt, outcome: HandedOutcome, cost: SettledCost | undefined): Promise<EndedAs>;
  /** Closes the worker. Jobs that no client has taken go back to the queue. */
  close(): Promise<void>;
}

export interface TakenJobsParts {
  readonly queue: Queue<unknown>;
  readonly slots: GivenSlots;
  readonly start: SluiceParts["startHandOver"];
  /** Called when no client has used this object for a while. */
  readonly onIdle: () => void;
}

/** How long the worker stays open without a request. */
const IDLE_MS = 60_000;
/** How long a client without jobs is listed after its last request. */
const LISTED_MS = 60_000;
/**
 * The lock of a job until a client has it. It also sets how soon expired locks of clients are found, so it is shorter
 * than that of other workers.
 */
const OWN_LOCK_MS = 10_000;
const MOST_AT_ONCE = 1_000;
/** The most clients of one queue that a server lists. */
const MOST_LISTED = 200;

export function createTakenJobs({ queue, slots, start, onIdle }: TakenJobsParts): TakenJobs {
  const bucket = queue.bucket as OwnedBucket;
  const clients = createClients();
  const takers = createTakers(() => worker.handedOver.onDemand());
  let idle = setTimeout(onIdle, IDLE_MS).unref();

  const handler = markWithoutCalls<HandOverParts["handler"]>((job, context) => {
    const { token, attempt, limitMs } = context as OwnedJobContext;
    const slot = context.slot as DrawnSlot;
    if (takers.offer({ job, token, attempt, slot, limitMs }))
      return new HandOver({ keepsSlot: true });
    giveBack(slot, { cost: job.cost }, { log: bucket.logger as never });
    return new HandOver({ isRefused: true });
  });
  const worker: OwnedWorker = start(queue, {
    handler,
    options: { concurrency: MOST_AT_ONCE, lockMs: OWN_LOCK_MS },
    demand: { jobs: () => takers.demand },
    clients: () => clients.list(),
  });

  function touch(): void {
    clearTimeout(idle);
    const isUsed = (): boolean => takers.demand > 0 || clients.list().length > 0;
    idle = setTimeout(() => (isUsed() ? touch() : onIdle()), IDLE_MS).unref();
  }

  /** Puts a job back that no client has received. */
  function putBack({ job, token, slot }: Offer, letGo?: () => void): void {
    letGo?.();
    giveBack(slot, { cost: job.cost }, { log: bucket.logger as never });
    void worker.handedOver.giveBack({ id: job.id, token });
  }

  function handOut(offer: Offer, { lockMs, client }: TakeRequest, caller: Caller): TakenJob {
    const { job, token, attempt, slot, limitMs } = offer;
    const { result: _result, endedAtMs: _ended, startByMs: _by, startedAtMs: _at, ...facts } = job;
    const { id: slotId, letGo } = slots.give(slot, { cost: job.cost, holdMs: lockMs });
    const limit = limitFrom(slot.atMs, limitMs);
    const receipt: Receipt = { id: job.id, token, slotId, limit };
    clients.hold(client, token, lockMs);
    worker.handedOver.limit(receipt, (failure) => settle(receipt, failure));
    caller.onHangUp(() => {
      clients.drop(token);
      putBack(offer, letGo);
    });
    const { bucket: bucketName, atMs, hasLease } = slot;
    return {
      receipt: writeReceipt(receipt),
      ...facts,
      attempt,
      lockMs,
      slot: { bucket: bucketName, atMs, hasLease },
    };
  }

  async function settle(
    receipt: Receipt,
    outcome: HandedOutcome,
    cost?: SettledCost,
  ): Promise<EndedAs> {
    const { slotId, token } = receipt;
    clients.drop(token);
    if (slotId === undefined) return worker.handedOver.settle(receipt, outcome);
    const slot = await slots.read(slotId);
    try {
      if (cost !== undefined) await slots.settle(slot, cost).catch(passOver);
      return await worker.handedOver.settle(receipt, outcome, () => bucket.slotOf(slot.facts));
    } finally {
      if (slot.facts.lease !== 0)
        await slots.release(slot).catch((error: unknown) => {
          const reason = reasonOf(error);
          const problem = "Could not end the lease of a job; it expires by itself.";
          if (!isOver(error))
            bucket.logger.warn({ bucket: bucket.name, job: receipt.id, reason }, problem);
        });
    }
  }

  /** Fails an attempt whose time is over, which its server did not do, because that server has ended. */
  async function failIfOverdue(receipt: Receipt): Promise<void> {
    const failure = worker.handedOver.overdue(receipt);
    if (failure === undefined) return;
    await settle(receipt, failure).catch((error: unknown) => {
      // The job has ended already.
      if (!(error instanceof JobLostError || error instanceof JobCancelledError)) throw error;
    });
  }

  return {
    async take(request, caller) {
      touch();
      clients.see(request);
      await slots.ready();
      const offers = await takers.take({ ...request, signal: caller.signal });
      if (offers.length === 0) return [];
      const locks = offers.map(({ job, token }) => ({ id: job.id, token }));
      let held: readonly boolean[];
      try {
        held = await worker.handedOver.renew(locks, request.lockMs);
      } catch (error) {
        for (const offer of offers) putBack(offer);
        throw error;
      }
      return offers.flatMap((offer, at) => {
        if (held[at] === true) return [handOut(offer, request, caller)];
        offer.slot.release({ outcome: "ignored" });
        return [];
      });
    },
    async extend(receipts, lockMs) {
      touch();
      await Promise.all(receipts.map(failIfOverdue));
      const states = await worker.handedOver.extend(receipts, lockMs);
      await Promise.all(
        receipts.map(async ({ token, slotId }, at) => {
          if (states[at] === "lost") return clients.drop(token);
          clients.renew(token, lockMs);
          if (slotId === undefined) return;
          const slot = await slots.read(slotId);
          const isHeld = slot.facts.lease !== 0 || slot.facts.cost !== undefined;
          if (isHeld) await slots.renew(slot, lockMs).catch(passOver);
        }),
      );
      return states;
    },
    async note(receipt, write) {
      touch();
      await failIfOverdue(receipt);
      return worker.handedOver.note(receipt, write);
    },
    settle(...ending) {
      touch();
      return settle(...ending);
    },
    async close() {
      clearTimeout(idle);
      await worker.close();
    },
  };
}

/** Ignores that a slot was released, or its time is over. */
function passOver(error: unknown): void {
  if (!isOver(error)) throw error;
}

function isOver(error: unknown): boolean {
  const { code } = error as Partial<HttpProblem>;
  return code === "ERR_SLOT_MISSING" || code === "ERR_LEASE_LOST";
}

/** @throws {@link InvalidOptionError} when no server can have written this receipt. */
export function receiptIn(option: string, text: string): Receipt {
  const read = readReceipt(text);
  if (read !== undefined) return read;
  const remedy = "give the receipt that came with the job";
  throw new InvalidOptionError({ where: "the body of the request", option, value: text, remedy });
}

/** The clients of one queue, as operators see them. */
interface Clients {
  see(request: Pick<TakeRequest, "client" | "max">): void;
  hold(client: string, token: string, lockMs: number): void;
  renew(token: string, lockMs: number): void;
  drop(token: string): void;
  list(): readonly ClientActivity[];
}

function createClients(): Clients {
  const seen = new Map<string, { readonly sinceMs: number; lastMs: number; max: number }>();
  /** The jobs that clients hold, by the tokens of their locks. A job that another server ended is forgotten later. */
  const held = new Map<string, { readonly client: string; untilMs: number }>();

  return {
    see({ client, max }) {
      const nowMs = Date.now();
      const known = seen.get(client);
      if (known === undefined) seen.set(client, { sinceMs: nowMs, lastMs: nowMs, max });
      else Object.assign(known, { lastMs: nowMs, max });
    },
    hold: (client, token, lockMs) => void held.set(token, { client, untilMs: Date.now() + lockMs }),
    renew(token, lockMs) {
      const job = held.get(token);
      if (job !== undefined) job.untilMs = Date.now() + lockMs;
    },
    drop: (token) => void held.delete(token),
    list() {
      const nowMs = Date.now();
      const counts = new Map<string, number>();
      for (const [token, { client, untilMs }] of held) {
        if (untilMs < nowMs) held.delete(token);
        else counts.set(client, (counts.get(client) ?? 0) + 1);
      }
      const rows: ClientActivity[] = [];
      for (const [client, { sinceMs, lastMs, max }] of seen) {
        const running = counts.get(client) ?? 0;
        if (running === 0 && nowMs - lastMs > LISTED_MS) seen.delete(client);
        else rows.push({ client, sinceMs, running, concurrency: Math.max(running, max) });
      }
      return rows.slice(0, MOST_LISTED);
    },
  };
}
