/**
 * Sends the warnings of budgets as webhooks. The process whose call reached a part sends the warning at once. All senders
 * also read the log of warnings in Redis, which has those of processes that ended too early. Both messages have the same
 * id, so only one is sent.
 */
import { createHash } from "node:crypto";
import * as z from "zod";
import { describeValue, reasonOf } from "../../core/describe.ts";
import { ClosedError, InvalidOptionError, StoreUnavailableError } from "../../core/errors.ts";
import type { Emitter } from "../../core/events/events.ts";
import { readOptional } from "../../core/input/options.ts";
import type { Logger } from "../../core/logger.ts";
import type { EndpointsRules } from "../../core/policy/endpoint-rules.ts";
import type {
  BucketEvents,
  BudgetEvent,
  WarningsReader,
} from "../../throttle/bucket/bucket-events.ts";
import { ID, type TenantOf } from "../names.ts";
import type { Sending } from "./send.ts";

/** A bucket or a pool, as `sendBudgetWarnings` needs it. */
export interface WarningBucket extends Pick<Emitter<Pick<BucketEvents, "budget">>, "on"> {
  readonly name: string;
}

/** The options of `sendBudgetWarnings`. */
export interface BudgetWarningsOptions {
  /**
   * The tenant whose endpoints get the warnings, or a function that returns the tenant of a warning: `({ key }) =>
   * key`. If it returns undefined, nothing is sent. Defaults to the tenant of the option `operator`. Omit it if the
   * sender has only one tenant.
   */
  readonly tenant?: string | ((event: BudgetEvent) => string | undefined) | undefined;
}

export interface BudgetWarnings {
  /**
   * Sends a message when a budget of the bucket or pool reaches a part of its `warnAt`. Its type is `budget.spent` for
   * the part 1, and `budget.warning` for others. Its data are the {@link BudgetEvent} and the name of the bucket. One
   * message is sent for each part and period, whichever process reaches the part: all processes give it the same id.
   *
   * Redis keeps each warning until it is sent, for a week at most. If the process that reached the part ends before it
   * has sent the message, another process that has called this method sends it within seconds. Returns a function that
   * stops it.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   */
  sendBudgetWarnings(bucket: WarningBucket, options?: BudgetWarningsOptions): () => void;
}

/** The warnings that a sender sends, with the methods for the sender itself. */
export interface OwnBudgetWarnings extends BudgetWarnings {
  /** Sends the warnings that the rules name. Stops sending those that the rules before named. */
  followRules(rules: EndpointsRules["budgetWarnings"]): void;
  /** Stops all of it, and waits for the requests in progress. */
  close(): Promise<void>;
}

const OPTIONS = z.strictObject({
  tenant: z
    .union([
      ID,
      z.custom<(event: BudgetEvent) => string | undefined>((given) => typeof given === "function", {
        error: "give a tenant, or a function that returns one",
      }),
    ])
    .optional(),
});

export function createBudgetWarnings(parts: {
  readonly sending: Sending;
  /** Passes the warnings in the log of a bucket to `handle`. Does nothing for an unknown bucket. */
  readonly handleLogged: (bucket: string, reader: WarningsReader) => Promise<void>;
  readonly name: string;
  readonly tenantOf: TenantOf;
  readonly isSingle: boolean;
  readonly operator: string | undefined;
  readonly logger: Logger;
}): OwnBudgetWarnings {
  const { sending, handleLogged, name, tenantOf, isSingle, operator, logger } = parts;
  const stops = new Set<() => void>();
  const underWay = new Set<Promise<void>>();
  let ruled: { readonly text: string; readonly stops: readonly (() => void)[] } | undefined;

  function logProblem(bucket: string, what: string, error: unknown): void {
    const reason = reasonOf(error);
    logger.error({ bucket, reason }, `${what}: ${reason}`);
  }

  /** Sends one warning. Logs what makes it impossible, and rejects if a later try may succeed. */
  async function send(bucket: string, event: BudgetEvent, tenant: Tenant): Promise<void> {
    const what = `A warning of ${event.budget} of bucket ${describeValue(bucket)} was not sent`;
    try {
      const to = typeof tenant === "function" ? tenant(event) : tenant;
      if (to === undefined && !isSingle) return;
      const type = event.part === 1 ? "budget.spent" : "budget.warning";
      const data = { bucket, ...event };
      await sending.send({ tenant: to, type, data, id: idOf(bucket, event) });
    } catch (error) {
      logProblem(bucket, what, error);
      if (error instanceof StoreUnavailableError || error instanceof ClosedError) throw error;
    }
  }

  function track(running: Promise<void>): void {
    const tracked = running.finally(() => underWay.delete(tracked));
    underWay.add(tracked);
  }

  /** Sends the logged warnings of a bucket again and again. Returns a function that stops it. */
  function follow(bucket: string, tenant: Tenant): () => void {
    // Each tenant has a separate position in the log.
    const reader = typeof tenant === "string" ? `${name}:${tenant}` : name;
    let isStopped = false;
    let timer: NodeJS.Timeout | undefined;

    async function look(): Promise<void> {
      try {
        const handle = (event: BudgetEvent): Promise<void> => send(bucket, event, tenant);
        await handleLogged(bucket, { reader, handle });
      } catch (error) {
        const what = `The warnings of budgets of bucket ${describeValue(bucket)} could not be read`;
        if (!isStopped) logProblem(bucket, what, error);
      }
      if (!isStopped) timer = setTimeout(() => track(look()), LOOK_EVERY_MS).unref();
    }

    function stop(): void {
      isStopped = true;
      clearTimeout(timer);
      stops.delete(stop);
    }
    stops.add(stop);
    track(look());
    return stop;
  }

  return {
    sendBudgetWarnings(bucket, given) {
      const where = "sendBudgetWarnings()";
      const { tenant = operator } = readOptional(where, OPTIONS, given);
      if (typeof (bucket as Partial<WarningBucket> | undefined)?.on !== "function") {
        const remedy = "give a bucket or a pool";
        throw new InvalidOptionError({ where, option: "bucket", value: bucket, remedy });
      }
      if (isSingle || typeof tenant !== "function") tenantOf(where, tenant as string | undefined);
      // A warning of this process is sent at once. The log then has it for others if that fails.
      const stopEvents = bucket.on("budget", (event) =>
        track(send(bucket.name, event, tenant).catch(() => {})),
      );
      const stopFollowing = follow(bucket.name, tenant);
      return () => {
        stopEvents();
        stopFollowing();
      };
    },
    followRules(rules = {}) {
      const text = JSON.stringify(rules);
      if (text === (ruled?.text ?? "{}")) return;
      for (const stop of ruled?.stops ?? []) stop();
      const all = Object.entries(rules).flatMap(([bucket, { tenant = operator }]) => {
        try {
          tenantOf(`the budgetWarnings of ${bucket} in the rules`, tenant);
          return [follow(bucket, tenant)];
        } catch (error) {
          const what = `The warnings of budgets of bucket ${describeValue(bucket)} are not sent`;
          logProblem(bucket, what, error);
          return [];
        }
      });
      ruled = { text, stops: all };
    },
    async close() {
      for (const stop of stops) stop();
      await Promise.all(underWay);
    },
  };
}

type Tenant = BudgetWarningsOptions["tenant"];

/** How often the log is read. Warnings of this process are sent at once. */
const LOOK_EVERY_MS = 5_000;

/** Returns the same id for each warning of the same part of the same budget in the same period. */
function idOf(bucket: string, event: BudgetEvent): string {
  const { key, keys, member, budget, part, resetsAt } = event;
  const facts = JSON.stringify([bucket, key, keys, member, budget, part, resetsAt]);
  return `budget_${createHash("sha256").update(facts).digest("base64url")}`;
}
