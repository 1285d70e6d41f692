/** What rules say of the endpoints of a sender of webhooks: limits, from all tenants to one endpoint. */
import * as z from "zod";
import type { RateInput } from "../limits/rate.ts";

export interface EndpointLimits {
  readonly rate?: RateInput | undefined;
  readonly concurrency?: number | undefined;
}

/** What they leave out is as the code of the sender says it. */
export interface EndpointsRules {
  readonly perTenant?: EndpointLimits | undefined;
  readonly perEndpoint?: EndpointLimits | undefined;
  /** The most that an endpoint may have of its own. */
  readonly ceiling?: EndpointLimits | undefined;
  readonly tenants?: Readonly<Record<string, TenantRules>> | undefined;
}

/** The limits of one tenant; what it leaves out is as it is for all. */
interface TenantRules extends EndpointLimits {
  readonly perEndpoint?: EndpointLimits | undefined;
  readonly ceiling?: EndpointLimits | undefined;
  readonly endpoints?: Readonly<Record<string, EndpointLimits>> | undefined;
}

const REMEDY = 'give 1 to 100 letters, digits and any of "_", "-", ".", "@", "+" and ":"';

/**
 * The name of a tenant or an endpoint.
 *
 * @internal
 */
export const ENDPOINT_ID: z.ZodType<string> = z
  .string({ error: REMEDY })
  .regex(/^[\w.@+:-]{1,100}$/, { error: REMEDY });

/** The most calls at once that a tenant or an endpoint may have. */
export const MOST_AT_ONCE = 1_000;
