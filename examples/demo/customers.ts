import { randomBytes } from "node:crypto";
import { createSecret } from "sluice/webhooks";

/** Who the webhooks are for: a tenant with one endpoint. */
export interface Customer {
  readonly tenant: string;
  /** What it verifies with. */
  readonly secret: string;
  /** How fast its endpoint is called at most, in calls a second; undefined if only the cap holds. */
  readonly perSecond: number | undefined;
}

/** The id of each customer's endpoint. */
export const ENDPOINT = "github";
/** A customer whose calls are answered like all others, but not reported. */
export const WARM_UP: Customer = {
  tenant: "warm-up",
  secret: createSecret(),
  perSecond: undefined,
};
/** One in this many webhooks is for the customer with a rate of its own. */
const SLOW_ONE_IN = 12;

/** Three customers as fast as the cap lets them be, and one that takes a tenth of it at most. */
export function createCustomers(rate: number): readonly [slow: Customer, ...others: Customer[]] {
  const customer = (tenant: string, perSecond?: number): Customer => ({
    tenant,
    secret: createSecret(),
    perSecond,
  });
  const slow = customer("umbrella", Math.max(1, Math.floor(rate / 10)));
  return [slow, ...["acme", "globex", "initech"].map((tenant) => customer(tenant))];
}

/** For whom the webhook of this number is. */
export function customerOf([slow, ...others]: readonly Customer[], number: number): Customer {
  return number % SLOW_ONE_IN === 0 ? slow! : others[number % others.length]!;
}

/** A key for the secrets in Redis, for this run. */
export function newSealingKeys(): string {
  return `k1:${randomBytes(32).toString("base64")}`;
}
