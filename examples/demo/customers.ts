import { randomBytes } from "node:crypto";
import { createSecret } from "sluice/webhooks";

/** A recipient of webhooks: a tenant with one endpoint. */
export interface Customer {
  readonly tenant: string;
  /** The secret with which the customer verifies webhooks. */
  readonly secret: string;
  /** The rate limit of the customer's endpoint, in calls a second. Undefined if only the cap applies. */
  readonly perSecond: number | undefined;
}

/** The id of each customer's endpoint. */
export const ENDPOINT = "github";
/** A customer whose calls get a normal response, but are not reported. */
export const WARM_UP: Customer = {
  tenant: "warm-up",
  secret: createSecret(),
  perSecond: undefined,
};
/** One of this many webhooks is for the customer with a separate limit. */
const SLOW_ONE_IN = 12;

/** Creates three customers that only the cap limits, and one with a limit of a tenth of the cap. */
export function createCustomers(rate: number): readonly [slow: Customer, ...others: Customer[]] {
  const customer = (tenant: string, perSecond?: number): Customer => ({
    tenant,
    secret: createSecret(),
    perSecond,
  });
  const slow = customer("umbrella", Math.max(1, Math.floor(rate / 10)));
  return [slow, ...["acme", "globex", "initech"].map((tenant) => customer(tenant))];
}

/** Returns the customer that receives the webhook with this number. */
export function customerOf([slow, ...others]: readonly Customer[], number: number): Customer {
  return number % SLOW_ONE_IN === 0 ? slow! : others[number % others.length]!;
}

/** Creates a key that encrypts the secrets in Redis, for this run only. */
export function newSealingKeys(): string {
  return `k1:${randomBytes(32).toString("base64")}`;
}
