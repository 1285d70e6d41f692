/** Defines the names of tenants and endpoints, and builds the key of an endpoint's jobs. */
import { createHash } from "node:crypto";
import * as z from "zod";
import { InvalidOptionError } from "../core/errors.ts";
import { encodeKey } from "../core/key-path.ts";
import { ENDPOINT_ID } from "../core/policy/endpoint-rules.ts";
import type { EndpointName } from "../stores/redis/scripts/webhooks/webhooks.ts";

/** @internal */
export const ID: z.ZodType<string> = ENDPOINT_ID;

/**
 * The schema of a one-line text with at most `most` characters.
 *
 * @internal
 */
export const lineOf = (most: number): z.ZodType<string> =>
  z
    .string({ error: "give a text" })
    .max(most, { error: `give at most ${most} characters` })
    .refine((text) => !/[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u.test(text), {
      error: "remove control characters",
    });

/** The tenant name under which a sender with a single tenant stores its endpoints. */
const ONLY_TENANT = "only";

/** Returns the given tenant, or the only tenant of a single-tenant sender. */
export type TenantOf = (where: string, given: string | undefined) => string;

/**
 * @throws {@link InvalidOptionError} when the tenant is missing, or is passed to a sender that has
 * only one tenant.
 */
export function createTenantOf(isSingle: boolean): TenantOf {
  return (where, given) => {
    if (isSingle && given === undefined) return ONLY_TENANT;
    const remedy = isSingle
      ? "remove it: the sender is declared with singleTenant"
      : "name the tenant of the endpoint, or declare the sender with singleTenant: true";
    if (isSingle || given === undefined) {
      throw new InvalidOptionError({ where, option: "tenant", value: given, remedy });
    }
    return given;
  };
}

/**
 * The key of an endpoint's jobs: the tenant, then the endpoint. It selects the lane in the queue
 * and the limits in the bucket.
 */
export function keyOf({ tenant, endpoint }: EndpointName): readonly [string, string] {
  return [tenant, endpoint];
}

/** Returns a digest to store in place of a tenant's name that must not be stored. */
export function digestOfTenant(tenant: string): string {
  return createHash("sha256").update(tenant).digest("base64url");
}

/** Encodes the key under which a tenant's or an endpoint's own limits are stored. */
export function limitsKeyOf({ tenant, endpoint }: { tenant: string; endpoint?: string }): string {
  return encodeKey(endpoint === undefined ? tenant : [tenant, endpoint]);
}
