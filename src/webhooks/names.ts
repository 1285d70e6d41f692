/** How tenants and endpoints are named, and how the key of an endpoint's jobs is built. */
import { createHash } from "node:crypto";
import * as z from "zod";
import { InvalidOptionError } from "../core/errors.ts";
import { encodeKey } from "../core/key-path.ts";
import { ENDPOINT_ID } from "../core/policy/endpoint-rules.ts";
import type { EndpointName } from "../stores/redis/scripts/webhooks/webhooks.ts";

/** @internal */
export const ID: z.ZodType<string> = ENDPOINT_ID;

/**
 * A text of one line.
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

/** Returns the tenant to use. */
export type TenantOf = (where: string, given: string | undefined) => string;

/**
 * @throws {@link InvalidOptionError} when a tenant is missing, or given to a sender that has only
 * one.
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
 * The key of an endpoint's jobs. It selects the lane in the queue and the limits in the bucket:
 * first the tenant's, then the endpoint's.
 */
export function keyOf({ tenant, endpoint }: EndpointName): readonly [string, string] {
  return [tenant, endpoint];
}

/** A digest in place of a tenant's name that must not be stored. */
export function digestOfTenant(tenant: string): string {
  return createHash("sha256").update(tenant).digest("base64url");
}

/** The text under which the own limits of a tenant or endpoint are stored. */
export function limitsKeyOf({ tenant, endpoint }: { tenant: string; endpoint?: string }): string {
  return encodeKey(endpoint === undefined ? tenant : [tenant, endpoint]);
}
