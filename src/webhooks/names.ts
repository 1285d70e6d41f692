/** How tenants and endpoints are named, and the one place where the key of an endpoint's jobs is made. */
import { createHash } from "node:crypto";
import * as z from "zod";
import { InvalidOptionError } from "../core/errors.ts";
import { textOfKey } from "../core/key-path.ts";
import { ENDPOINT_ID } from "../core/policy/endpoint-rules.ts";
import type { EndpointName } from "../core/stores/webhooks/store.ts";

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
      error: "leave out control characters",
    });

/** Under which the endpoints of a sender with one tenant are kept. */
const ONLY_TENANT = "only";

/** The tenant that is meant. */
export type TenantOf = (where: string, given: string | undefined) => string;

/** @throws {@link InvalidOptionError} for no tenant, and for one where the sender has only one. */
export function createTenantOf(isSingle: boolean): TenantOf {
  return (where, given) => {
    if (isSingle && given === undefined) return ONLY_TENANT;
    const remedy = isSingle
      ? "leave it out: the sender is declared with singleTenant"
      : "name the tenant whose endpoints are meant, or declare the sender with singleTenant: true";
    if (isSingle || given === undefined) {
      throw new InvalidOptionError({ where, option: "tenant", value: given, remedy });
    }
    return given;
  };
}

/**
 * The key of an endpoint's jobs: its lane in the queue, and its limits in the bucket. Limits and turns are those of the
 * tenant first, and inside a tenant those of its endpoints.
 */
export function keyOf({ tenant, endpoint }: EndpointName): readonly [string, string] {
  return [tenant, endpoint];
}

/** Stands for a tenant whose name is not to be kept. */
export function digestOfTenant(tenant: string): string {
  return createHash("sha256").update(tenant).digest("base64url");
}

/** Under which text the limits are kept that a tenant, or one of its endpoints, has of its own. */
export function limitsKeyOf({ tenant, endpoint }: { tenant: string; endpoint?: string }): string {
  return textOfKey(endpoint === undefined ? tenant : [tenant, endpoint]);
}
