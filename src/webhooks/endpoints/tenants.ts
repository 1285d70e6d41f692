/** Tenants, which are there by their endpoints, and the limits of all that one of them has. */
import * as z from "zod";
import { assertArgumentCount } from "../../core/input/arguments.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import { readOptional, readOptions, wholeNumber } from "../../core/input/options.ts";
import type { RateInput } from "../../core/limits/rate.ts";
import { readWhoAndWhy, type WhoAndWhy } from "../../core/input/who-and-why.ts";
import type { ChangeFacts } from "../../core/stores/insight/steering.ts";
import type { SteeringLog } from "../../core/stores/insight/steering-log.ts";
import type { WebhookStore } from "../../core/stores/webhooks/store.ts";
import type { Ask } from "../asking.ts";
import { ID, limitsKeyOf } from "../names.ts";
import { assertWithin, OWN_LIMITS } from "./endpoint-options.ts";

export interface TenantLimits {
  readonly tenant: string;
  /** How fast all its endpoints together are called. Defaults to the sender's `perTenant`. */
  readonly rate?: RateInput | undefined;
  /** How many calls they get at once, all together. Defaults to the sender's `perTenant`. */
  readonly concurrency?: number | undefined;
}

/** A tenant, with the limits that it has of its own. */
export interface Tenant extends TenantLimits {
  /** How many endpoints it has. */
  readonly endpoints: number;
}

export interface ListTenants {
  /** How many at most, up to 1,000. Defaults to 100. */
  readonly limit?: number | undefined;
  /** Where the page begins: the `cursor` of the one before. */
  readonly cursor?: string | undefined;
}

export interface TenantsPage {
  /** Those that have endpoints, by their names. */
  readonly tenants: readonly string[];
  /** Where the next page begins; undefined after the last one. */
  readonly cursor: string | undefined;
}

/** The tenants of a sender, for its operator. All reject with StoreUnavailableError when Redis is away. */
export interface Tenants {
  /**
   * Gives a tenant limits of its own, for all its endpoints together, instead of the sender's `perTenant`; those that are
   * left out become the sender's again. They hold in all processes within a second. Listed by `sluice.changes()`, with who
   * and why.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   */
  setLimits(limits: TenantLimits, byHand?: WhoAndWhy): Promise<void>;
  /** A tenant's own limits, and how many endpoints it has. One that was never heard of has none. */
  get(tenant: { readonly tenant: string }): Promise<Tenant>;
  /** A page of the tenants that have endpoints. Go on with its `cursor` until there is none. */
  list(options?: ListTenants): Promise<TenantsPage>;
}

export interface TenantsParts {
  /** Of the sender. */
  readonly name: string;
  readonly log: SteeringLog;
  readonly store: WebhookStore;
  readonly ask: Ask;
  readonly isSingle: boolean;
}

const TENANT_LIMITS = z.strictObject({ tenant: ID, ...OWN_LIMITS });
const TENANT = z.strictObject({ tenant: ID });
const LIST = z.strictObject({
  limit: wholeNumber(1, 1_000, "tenants").optional(),
  cursor: ID.optional(),
});
export function createTenants({ name, log, store, ask, isSingle }: TenantsParts): Tenants {
  function assertMany(where: string): void {
    if (!isSingle) return;
    const remedy = "the sender has only one tenant; give createWebhooks() its rate and concurrency";
    throw new InvalidOptionError({ where, option: "singleTenant", value: true, remedy });
  }

  const tenants: Tenants = {
    async setLimits(given, byHand) {
      const where = "tenants.setLimits()";
      const said = readWhoAndWhy(where, byHand);
      const { tenant, ...limits } = readOptions(where, TENANT_LIMITS, given);
      assertMany(where);
      assertWithin(where, limits, {});
      const key = limitsKeyOf({ tenant });
      const before = await ask(() => store.limits(key));
      const change = { queue: name, endpoint: { tenant, id: undefined }, ...said } as const;
      const [was, is] = [factsOf(before), factsOf(limitsText(limits))];
      await log.make({ ...change, action: "setLimits", before: was, after: is }, () =>
        ask(() => store.setLimits(key, limitsText(limits))),
      );
    },
    async get(given) {
      const where = "tenants.get()";
      const { tenant } = readOptions(where, TENANT, given);
      assertMany(where);
      const [limits, endpoints] = await Promise.all([
        ask(() => store.limits(limitsKeyOf({ tenant }))),
        ask(() => store.countEndpoints(tenant)),
      ]);
      const own = limits === undefined ? {} : (JSON.parse(limits) as Omit<TenantLimits, "tenant">);
      return { tenant, rate: own.rate, concurrency: own.concurrency, endpoints };
    },
    async list(given) {
      const where = "tenants.list()";
      const { limit = 100, cursor = "" } = readOptional(where, LIST, given);
      assertMany(where);
      const found = await ask(() => store.tenants(cursor, limit));
      return { tenants: found, cursor: found.length < limit ? undefined : found.at(-1) };
    },
  };
  return assertArgumentCount(tenants);
}

/** Limits of its own, as the log of changes has them. */
function factsOf(limits: string | undefined): ChangeFacts {
  const { rate, concurrency } = JSON.parse(limits ?? "{}") as Omit<TenantLimits, "tenant">;
  return {
    ...(rate === undefined ? {} : { rate: typeof rate === "string" ? rate : JSON.stringify(rate) }),
    ...(concurrency === undefined ? {} : { concurrency }),
  };
}

/** Limits of one's own, as they are kept; undefined for none. */
export function limitsText({
  rate,
  concurrency,
}: Pick<TenantLimits, "rate" | "concurrency">): string | undefined {
  const isNone = rate === undefined && concurrency === undefined;
  return isNone ? undefined : JSON.stringify({ rate, concurrency });
}
