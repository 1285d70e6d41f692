import process from "node:process";
import type { Sluice } from "sluice";
import { createWebhooks, type Webhooks } from "sluice/webhooks";
import { z } from "zod";
import {
  flag,
  list,
  milliseconds,
  queueVariables,
  rate,
  rateVariables,
  readSettings,
  wholeNumber,
  type SettingsOf,
} from "../shared/settings.ts";

const { queue, parallel } = queueVariables("webhooks");
const { burst } = rateVariables("100/s");
const calls = wholeNumber(1, 1_000, "calls");
const waits = list.transform((each, context) => {
  if (each.every((text) => /^\d{1,16}$/.test(text))) return each.map(Number);
  context.addIssue({ code: "custom", message: "give waits in milliseconds, such as 0,5000,60000" });
  return z.NEVER;
});

/**
 * The environment variables of the webhook sender, which producers and workers both read. The property names are those
 * of the sender's options.
 */
export const WEBHOOK_SENDER = {
  queue,
  rate: { name: "SLUICE_RATE", as: rate.optional() },
  burst,
  parallel,
  keys: {
    name: "SLUICE_WEBHOOK_KEYS",
    as: z.string({ error: 'give keys such as "k1:$(openssl rand -base64 32)"' }),
    isSecret: true,
  },
  singleTenant: { name: "SLUICE_SINGLE_TENANT", as: flag },
  perTenant: { name: "SLUICE_TENANT_RATE", as: rate.optional() },
  perTenantParallel: { name: "SLUICE_TENANT_PARALLEL", as: calls.optional() },
  perEndpoint: { name: "SLUICE_ENDPOINT_RATE", as: rate.optional() },
  perEndpointParallel: { name: "SLUICE_ENDPOINT_PARALLEL", as: calls.default(10) },
  ceiling: { name: "SLUICE_CEILING_RATE", as: rate.optional() },
  ceilingParallel: { name: "SLUICE_CEILING_PARALLEL", as: calls.optional() },
  allow: { name: "SLUICE_ALLOW", as: list.optional() },
  http: { name: "SLUICE_ALLOW_HTTP", as: flag },
  proxy: { name: "SLUICE_PROXY", as: z.string().optional(), isSecret: true },
  scheduleMs: { name: "SLUICE_SCHEDULE_MS", as: waits.optional() },
  keepMs: { name: "SLUICE_KEEP_MS", as: milliseconds(1).optional() },
  disableAfterMs: { name: "SLUICE_DISABLE_AFTER_MS", as: milliseconds(1).optional() },
  maxRetryAfterMs: { name: "SLUICE_MAX_RETRY_AFTER_MS", as: milliseconds(0).optional() },
  operator: { name: "SLUICE_OPERATOR", as: z.string().optional() },
  userAgent: { name: "SLUICE_USER_AGENT", as: z.string().optional() },
};

/**
 * Opens the webhook sender with the settings from the environment. Producers and workers must use the same settings.
 */
export function openWebhooks(
  sluice: Sluice,
  settings: SettingsOf<typeof WEBHOOK_SENDER> & { readonly timeoutMs?: number } = readSettings(
    process.env,
    WEBHOOK_SENDER,
  ),
): Webhooks {
  const { queue: name, parallel, perTenant, perTenantParallel, ...options } = settings;
  const { perEndpoint, perEndpointParallel, ceiling, ceilingParallel } = options;
  const hasTenantLimits = perTenant !== undefined || perTenantParallel !== undefined;
  return createWebhooks(sluice, {
    name,
    rate: options.rate,
    burst: options.burst,
    concurrency: parallel,
    perTenant: hasTenantLimits ? { rate: perTenant, concurrency: perTenantParallel } : undefined,
    perEndpoint: { rate: perEndpoint, concurrency: perEndpointParallel },
    ceiling: { rate: ceiling, concurrency: ceilingParallel },
    keys: options.keys,
    singleTenant: options.singleTenant,
    allow: options.allow,
    http: options.http,
    proxy: options.proxy,
    scheduleMs: options.scheduleMs,
    keepMs: options.keepMs,
    disableAfterMs: options.disableAfterMs,
    maxRetryAfterMs: options.maxRetryAfterMs,
    operator: options.operator,
    userAgent: options.userAgent,
    timeoutMs: options.timeoutMs,
  });
}
