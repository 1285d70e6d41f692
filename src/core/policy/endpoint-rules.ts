/**
 * The limits for a webhook sender's endpoints in a rules file: for all tenants, for one tenant, or for one endpoint.
 */
import * as z from "zod";
import type { RateInput } from "../limits/rate.ts";

export interface EndpointLimits {
  readonly rate?: RateInput | undefined;
  readonly concurrency?: number | undefined;
}

/** The rules for endpoints. Omitted settings keep the value from the sender's code. */
export interface EndpointsRules {
  readonly perTenant?: EndpointLimits | undefined;
  readonly perEndpoint?: EndpointLimits | undefined;
  /** The highest limits that an endpoint can choose. */
  readonly ceiling?: EndpointLimits | undefined;
  readonly tenants?: Readonly<Record<string, TenantRules>> | undefined;
  /** The buckets whose warnings of budgets the sender's workers send, by name. */
  readonly budgetWarnings?: Readonly<Record<string, WarningRules>> | undefined;
}

/** Where the warnings of one bucket are sent. */
interface WarningRules {
  /** The tenant whose endpoints get the warnings. Defaults to the sender's `operator`. */
  readonly tenant?: string | undefined;
}

/** The limits of one tenant. An omitted setting has the value that applies to all tenants. */
interface TenantRules extends EndpointLimits {
  readonly perEndpoint?: EndpointLimits | undefined;
  readonly ceiling?: EndpointLimits | undefined;
  readonly endpoints?: Readonly<Record<string, EndpointLimits>> | undefined;
}

const REMEDY = 'give 1 to 100 letters, digits and any of "_", "-", ".", "@", "+" and ":"';

/**
 * The schema for the id of a tenant or an endpoint.
 *
 * @internal
 */
export const ENDPOINT_ID: z.ZodType<string> = z
  .string({ error: REMEDY })
  .regex(/^[\w.@+:-]{1,100}$/, { error: REMEDY });

/** The most simultaneous calls that a tenant or an endpoint may have. */
export const MOST_AT_ONCE = 1_000;
