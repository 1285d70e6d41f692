/**
 * What a rules file may say. The checks here, the file `sluice.schema.json` that editors read, and `docs/rules.md` have
 * one source: this schema. What only makes sense together (a burst that fits a window) is checked by `compile.ts`.
 */
import * as z from "zod";
import { NAME, wholeNumber } from "../core/input/options.ts";
import { queueSettingSchemas, type QueueRules } from "../core/input/queue-settings.ts";
import { limitSchemas } from "../core/policy/limit-data.ts";
import { ENDPOINT_ID, MOST_AT_ONCE, type EndpointsRules } from "../core/policy/endpoint-rules.ts";

/** Made where it is first needed: a process without a rules file does not pay for it. */
function makeSchema() {
  const { rate, units, shadow, limit } = limitSchemas();
  const limits = z.strictObject({
    rate: rate.optional(),
    burst: units.optional().describe("Calls that may leave at once after an idle time."),
    shadow,
    concurrency: wholeNumber(1, 1_000_000, "calls")
      .optional()
      .describe("Calls that may run at once, over all replicas."),
    limits: z.array(limit).optional().describe("More limits; a call needs room in all of them."),
  });
  const ofKeys = limits.extend({
    tier: z
      .string({ error: "give the name of a tier" })
      .optional()
      .describe("The tier whose limits these are; what stands beside goes before it."),
  });
  const ofLevel = z.union([ofKeys, z.null()]);
  const share = z.number().min(0.01).max(1).optional();
  const policy = limits.extend({
    perKey: z
      .union([ofKeys, z.array(ofLevel), z.record(z.string(), ofKeys)])
      .optional()
      .describe("Limits of each key: the same for all, by level (the widest first), or by name."),
    shares: z
      .strictObject({ critical: share, high: share, normal: share, low: share })
      .optional()
      .describe("How much of the horizon each priority may fill."),
  });
  const bucket = policy.nullable();
  const queue = z.strictObject(queueSettingSchemas());
  const ofEndpoint = {
    rate: rate.optional(),
    concurrency: wholeNumber(1, MOST_AT_ONCE, "calls").optional(),
  };
  const endpoint = z.strictObject(ofEndpoint);
  const tenant = z.strictObject({
    ...ofEndpoint,
    perEndpoint: endpoint.optional().describe("The limits of each of its endpoints."),
    ceiling: endpoint.optional().describe("The most that its endpoints may set."),
    endpoints: z.record(ENDPOINT_ID, endpoint).optional(),
  });
  const sender = z.strictObject({
    perTenant: endpoint.optional().describe("The limits of each tenant, all its endpoints."),
    perEndpoint: endpoint.optional().describe("The limits of each endpoint."),
    ceiling: endpoint.optional().describe("The most that endpoints may set."),
    tenants: z.record(ENDPOINT_ID, tenant).optional(),
  });
  return z.strictObject({
    $schema: z.string().optional().describe("Where the schema is, for editors."),
    version: wholeNumber(1, Number.MAX_SAFE_INTEGER, "versions")
      .optional()
      .describe(
        "Of two files, the one of the greater version counts. Defaults to its time of change.",
      ),
    tiers: z
      .record(NAME, limits)
      .optional()
      .describe("Limits of keys by name, to which perKey of buckets refers."),
    defaults: policy.optional().describe("What the buckets below leave out."),
    buckets: z
      .record(NAME, bucket)
      .describe("The limits of buckets, by name. They go before those of the code."),
    queues: z
      .record(NAME, queue)
      .optional()
      .describe("What holds for queues, by name. It goes before what the code says."),
    endpoints: z
      .record(NAME, sender)
      .optional()
      .describe("The limits of tenants and endpoints, by the name of the sender of webhooks."),
  });
}

export interface RulesData {
  readonly version?: number | undefined;
  readonly tiers?: Readonly<Record<string, object>> | undefined;
  readonly defaults?: object | undefined;
  readonly buckets: Readonly<Record<string, object | null>>;
  readonly queues?: Readonly<Record<string, QueueRules>> | undefined;
  readonly endpoints?: Readonly<Record<string, EndpointsRules>> | undefined;
}

let schema: z.ZodType<RulesData> | undefined;

export function rulesSchema(): z.ZodType<RulesData> {
  return (schema ??= makeSchema());
}

/** Names that stand at the top of a file, and in a bucket. */
export const TOP_NAMES: readonly string[] = [
  "version",
  "tiers",
  "defaults",
  "buckets",
  "queues",
  "endpoints",
];
