/** Moves rows of an outbox to their queues and to the webhook sender. */
import { reasonOf } from "../../core/describe.ts";
import { ClosedError, StoreUnavailableError } from "../../core/errors.ts";
import type { Webhooks } from "../../webhooks/create-webhooks.ts";
import { messageRowsOf } from "../../webhooks/sending/send.ts";
import type { OutboxRows } from "../enqueue/enqueue.ts";
import { QueueFullError } from "../errors.ts";

/** A row that a relay has locked. */
export interface Row {
  readonly id: string;
  readonly isWebhook: boolean;
  /** The name of the queue or of the webhook sender. */
  readonly target: string;
  /** The key whose rows keep their order. Rows without a key have no order. */
  readonly orderKey: string | undefined;
  readonly json: string;
  readonly options: object;
}

/** The results for some rows. Rows in none of the lists were not tried, and stay. */
export interface Moved {
  readonly moved: readonly string[];
  /** The rows that their target rejected, with the reasons. */
  readonly rejected: readonly { readonly row: Row; readonly reason: string }[];
  /** The queues without room, and the keys without room. Their rows wait, and have no failed attempt. */
  readonly full: readonly { readonly target: string; readonly orderKey: string | undefined }[];
  /** Why Redis could not store some rows. Undefined if Redis replied to all requests. */
  readonly trouble: unknown;
}

/** The right to move some rows for a time. */
export interface Claim {
  /** The id of the outbox. */
  readonly outbox: string;
  /** For each queue, the time after which it stores no more rows, in ms since 1970 on the clock of its Redis. */
  readonly untilMs: ReadonlyMap<string, number>;
}

export interface MoveParts {
  readonly queues: ReadonlyMap<string, OutboxRows>;
  readonly webhooks: Pick<Webhooks, "send" | "queue"> | undefined;
}

/**
 * How long a batch tries rows, so that Redis and Postgres still accept the results. The remaining rows are in the next
 * batch.
 */
const TRY_FOR_MS = 10_000;
/** How many tenants get their webhooks at the same time. */
const TENANTS_AT_ONCE = 50;

/** Collects the results of the rows of one target. Once a row of a key has no success, later rows of the key wait. */
class Results {
  readonly moved: string[] = [];
  readonly rejected: { row: Row; reason: string }[] = [];
  readonly full: { target: string; orderKey: string | undefined }[] = [];
  trouble: unknown;
  readonly #heldKeys = new Set<string>();

  holds({ orderKey }: Row): boolean {
    return orderKey !== undefined && this.#heldKeys.has(orderKey);
  }

  hold({ orderKey }: Row): void {
    if (orderKey !== undefined) this.#heldKeys.add(orderKey);
  }

  reject(row: Row, error: unknown): void {
    this.rejected.push({ row, reason: reasonOf(error) });
    this.hold(row);
  }
}

/**
 * Moves rows. Rows of one key keep the given order. Never rejects.
 */
export async function moveRows(
  rows: readonly Row[],
  claim: Claim,
  { queues, webhooks }: MoveParts,
): Promise<Moved> {
  const groups = groupBy(rows, ({ isWebhook, target }) => `${isWebhook} ${target}`);
  const moving = [...groups.values()].map(async (group) => {
    const results = new Results();
    const { isWebhook, target } = group[0]!;
    const queue = isWebhook ? undefined : queues.get(target);
    try {
      if (queue !== undefined) await moveToQueue(group, queue, claim, results);
      else if (isWebhook && webhooks?.queue.name === target) {
        await moveToWebhooks(group, webhooks, results);
      } else rejectUnknown(group, results);
    } catch (error) {
      results.trouble ??= error;
    }
    return results;
  });
  const all = await Promise.all(moving);
  return {
    moved: all.flatMap(({ moved }) => moved),
    rejected: all.flatMap(({ rejected }) => rejected),
    full: all.flatMap(({ full }) => full),
    trouble: all.find(({ trouble }) => trouble !== undefined)?.trouble,
  };
}

function rejectUnknown(rows: readonly Row[], results: Results): void {
  for (const row of rows) {
    if (results.holds(row)) continue;
    const what = row.isWebhook
      ? `There is no webhook sender "${row.target}" in this relay. Give it to createOutbox()`
      : `There is no queue "${row.target}" in this relay. Add it to the queues of createOutbox()`;
    results.reject(row, `${what}, and call retry().`);
  }
}

async function moveToQueue(
  rows: readonly Row[],
  queue: OutboxRows,
  claim: Claim,
  results: Results,
): Promise<void> {
  const jobs: { row: Row; job: Awaited<ReturnType<OutboxRows["check"]>> }[] = [];
  const endsAtMs = performance.now() + TRY_FOR_MS;
  for (const row of rows) {
    if (jobs.length > 0 && performance.now() > endsAtMs) break;
    if (results.holds(row)) continue;
    try {
      jobs.push({ row, job: await queue.check(row) });
    } catch (error) {
      if (isTrouble(error)) throw error;
      results.reject(row, error);
    }
  }
  if (jobs.length === 0) return;
  try {
    const all = jobs.map(({ job }) => job);
    const { target } = rows[0]!;
    await queue.store(all, { id: claim.outbox, untilMs: claim.untilMs.get(target)! });
    results.moved.push(...jobs.map(({ row }) => row.id));
  } catch (error) {
    if (isTrouble(error)) throw error;
    // One job may have made Redis or the queue reject all of them.
    await storeEach(jobs, queue, claim, results);
  }
}

async function storeEach(
  jobs: readonly { row: Row; job: Awaited<ReturnType<OutboxRows["check"]>> }[],
  queue: OutboxRows,
  claim: Claim,
  results: Results,
): Promise<void> {
  for (const { row, job } of jobs) {
    if (results.holds(row)) continue;
    try {
      await queue.store([job], { id: claim.outbox, untilMs: claim.untilMs.get(row.target)! });
      results.moved.push(row.id);
    } catch (error) {
      if (isTrouble(error)) throw error;
      if (!(error instanceof QueueFullError)) {
        results.reject(row, error);
        continue;
      }
      const { target, orderKey } = row;
      const isOfKey = error.key !== undefined;
      results.full.push({ target, orderKey: isOfKey ? orderKey : undefined });
      if (!isOfKey) return;
      results.hold(row);
    }
  }
}

async function moveToWebhooks(
  rows: readonly Row[],
  webhooks: Pick<Webhooks, "send">,
  results: Results,
): Promise<void> {
  const endsAtMs = performance.now() + TRY_FOR_MS;
  const tenants = [...groupBy(rows, ({ orderKey }) => orderKey ?? "").values()];
  const sendNext = async (): Promise<void> => {
    for (let some = tenants.pop(); some !== undefined; some = tenants.pop()) {
      for (const row of some) {
        if (performance.now() > endsAtMs) return;
        if (results.holds(row)) continue;
        try {
          const options = row.options as Parameters<Webhooks["send"]>[0];
          const data = await messageRowsOf(webhooks)!.dataOf(row);
          await webhooks.send({ id: row.id, ...options, data });
          results.moved.push(row.id);
        } catch (error) {
          if (isTrouble(error)) throw error;
          results.reject(row, error);
        }
      }
    }
  };
  const sending = Array.from({ length: TENANTS_AT_ONCE }, () =>
    sendNext().catch((error: unknown) => {
      results.trouble ??= error;
    }),
  );
  await Promise.all(sending);
}

/** True if the error is about Redis or this process, and not about the row. */
function isTrouble(error: unknown): boolean {
  return error instanceof StoreUnavailableError || error instanceof ClosedError;
}

function groupBy<Item>(
  items: readonly Item[],
  nameOf: (item: Item) => string,
): Map<string, Item[]> {
  const groups = new Map<string, Item[]>();
  for (const item of items) {
    const name = nameOf(item);
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [item]);
    else group.push(item);
  }
  return groups;
}
