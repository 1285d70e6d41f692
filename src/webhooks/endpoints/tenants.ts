/**
 * Reads tenants and sets their limits. A tenant exists while it has endpoints. Its limits apply
 * over all its endpoints.
 */
import * as z from "zod";
import { assertArgumentCount } from "../../core/input/arguments.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import { readOptional, readOptions, wholeNumber } from "../../core/input/options.ts";
import type { RateInput } from "../../core/limits/rate.ts";
import { readWhoAndWhy, type WhoAndWhy } from "../../core/input/who-and-why.ts";
import type { ChangeFacts } from "../../core/stores/insight/changes.ts";
import type { ChangeLog } from "../../core/stores/insight/change-log.ts";
import type { WebhookStore } from "../../stores/redis/webhooks/store.ts";
import { ID, limitsKeyOf } from "../names.ts";
import { assertWithin, OWN_LIMITS } from "./endpoint-options.ts";

export interface TenantLimits {
  readonly tenant: string;
  /** The rate over all endpoints of the tenant. Defaults to the sender's `perTenant`. */
  readonly rate?: RateInput | undefined;
  /**
   * The number of simultaneous calls over all endpoints of the tenant. Defaults to the sender's
   * `perTenant`.
   */
  readonly concurrency?: number | undefined;
}

/** A tenant and its own limits. */
export interface Tenant extends TenantLimits {
  /** The number of the tenant's endpoints. */
  readonly endpoints: number;
}

export interface ListTenants {
  /** The most entries on the page, up to 1,000. Defaults to 100. */
  readonly limit?: number | undefined;
  /** The `cursor` of the previous page. Defaults to the start. */
  readonly cursor?: string | undefined;
}

export interface TenantsPage {
  /** The tenants that have endpoints, sorted by name. */
  readonly tenants: readonly string[];
  /** The cursor of the next page; undefined on the last one. */
  readonly cursor: string | undefined;
}

/**
 * The tenants of a sender, for its operator. All methods reject with StoreUnavailableError when
 * Redis is unreachable.
 */
export interface Tenants {
  /**
   * Sets a tenant's own limits over all its endpoints, in place of the sender's `perTenant`.
   * Omitted limits return to `perTenant`. The limits apply in all processes within a second.
   * `sluice.changes()` lists the change, its author and its reason.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   */
  setLimits(limits: TenantLimits, byHand?: WhoAndWhy): Promise<void>;
  /** Returns a tenant's own limits and the number of its endpoints. An unknown tenant has none. */
  get(tenant: { readonly tenant: string }): Promise<Tenant>;
  /**
   * Returns a page of the tenants that have endpoints. To read all pages, continue with `cursor`
   * until it is undefined.
   */
  list(options?: ListTenants): Promise<TenantsPage>;
}

export interface TenantsParts {
  /** The name of the sender. */
  readonly name: string;
  readonly log: ChangeLog;
  readonly store: WebhookStore;
  readonly isSingle: boolean;
}

const TENANT_LIMITS = z.strictObject({ tenant: ID, ...OWN_LIMITS });
const TENANT = z.strictObject({ tenant: ID });
const LIST = z.strictObject({
  limit: wholeNumber(1, 1_000, "tenants").optional(),
  cursor: ID.optional(),
});
export function createTenants({ name, log, store, isSingle }: TenantsParts): Tenants {
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
      const before = await store.limits(key);
      const change = { queue: name, endpoint: { tenant, id: undefined }, ...said } as const;
      const [was, is] = [factsOf(before), factsOf(limitsText(limits))];
      await log.make({ ...change, action: "setLimits", before: was, after: is }, () =>
        store.setLimits({ key, limits: limitsText(limits) }),
      );
    },
    async get(given) {
      const where = "tenants.get()";
      const { tenant } = readOptions(where, TENANT, given);
      assertMany(where);
      const [limits, endpoints] = await Promise.all([
        store.limits(limitsKeyOf({ tenant })),
        store.countEndpoints(tenant),
      ]);
      const own = limits === undefined ? {} : (JSON.parse(limits) as Omit<TenantLimits, "tenant">);
      return { tenant, rate: own.rate, concurrency: own.concurrency, endpoints };
    },
    async list(given) {
      const where = "tenants.list()";
      const { limit = 100, cursor = "" } = readOptional(where, LIST, given);
      assertMany(where);
      const found = await store.tenants(cursor, limit);
      return { tenants: found, cursor: found.length < limit ? undefined : found.at(-1) };
    },
  };
  return assertArgumentCount(tenants);
}

/** Formats a tenant's own limits for the change log. */
function factsOf(limits: string | undefined): ChangeFacts {
  const { rate, concurrency } = JSON.parse(limits ?? "{}") as Omit<TenantLimits, "tenant">;
  return {
    ...(rate === undefined ? {} : { rate: typeof rate === "string" ? rate : JSON.stringify(rate) }),
    ...(concurrency === undefined ? {} : { concurrency }),
  };
}

/** Serializes own limits for storage. Returns undefined if there are none. */
export function limitsText({
  rate,
  concurrency,
}: Pick<TenantLimits, "rate" | "concurrency">): string | undefined {
  const isNone = rate === undefined && concurrency === undefined;
  return isNone ? undefined : JSON.stringify({ rate, concurrency });
}
