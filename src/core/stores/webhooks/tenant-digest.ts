import { createHash } from "node:crypto";

/** Stands for a tenant whose name is not to be kept. */
export function digestOfTenant(tenant: string): string {
  return createHash("sha256").update(tenant).digest("base64url");
}
