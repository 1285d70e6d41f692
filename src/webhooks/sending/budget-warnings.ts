/** Sends the warnings of budgets as webhooks. Each warning is an event of a bucket in one process. */
import { createHash } from "node:crypto";
import * as z from "zod";
import { describeValue, reasonOf } from "../../core/describe.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import type { Emitter } from "../../core/events/events.ts";
import { readOptional } from "../../core/input/options.ts";
import type { Logger } from "../../core/logger.ts";
import type { BucketEvents, BudgetEvent } from "../../throttle/bucket/bucket-events.ts";
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
   * message is sent for each part and period, whichever process reaches the part. Call this in each process that draws
   * from the bucket. Returns a function that stops it.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   */
  sendBudgetWarnings(bucket: WarningBucket, options?: BudgetWarningsOptions): () => void;
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
  readonly tenantOf: TenantOf;
  readonly isSingle: boolean;
  readonly operator: string | undefined;
  readonly logger: Logger;
}): BudgetWarnings {
  const { sending, tenantOf, isSingle, operator, logger } = parts;

  async function sendWarning(
    bucket: string,
    event: BudgetEvent,
    tenant: BudgetWarningsOptions["tenant"],
  ): Promise<void> {
    const to = typeof tenant === "function" ? tenant(event) : tenant;
    if (to === undefined && !isSingle) return;
    await sending.send({
      tenant: to,
      type: event.part === 1 ? "budget.spent" : "budget.warning",
      data: { bucket, ...event },
      id: idOf(bucket, event),
    });
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
      return bucket.on("budget", (event) =>
        sendWarning(bucket.name, event, tenant).catch((error: unknown) => {
          const reason = reasonOf(error);
          const what = `${event.budget} of bucket ${describeValue(bucket.name)}`;
          logger.error(
            { bucket: bucket.name, reason },
            `A warning of ${what} was not sent: ${reason}`,
          );
        }),
      );
    },
  };
}

/** Returns the same id for each warning of the same part of the same budget in the same period. */
function idOf(bucket: string, event: BudgetEvent): string {
  const { key, keys, member, budget, part, resetsAt } = event;
  const facts = JSON.stringify([bucket, key, keys, member, budget, part, resetsAt]);
  return `budget_${createHash("sha256").update(facts).digest("base64url")}`;
}
