/**
 * The schema of a rules file. The checks here, `sluice.schema.json` for editors, and
 * `docs/guides/operate/rules-file.md` are all based on this schema. `compile.ts` checks whether values are valid
 * together, such as a burst and its window.
 */
import * as z from "zod";
import { LONGEST_MS, NAME, wholeNumber } from "../core/input/options.ts";
import { queueSettingSchemas, type QueueRules } from "../core/input/queue-settings.ts";
import { fairSchema } from "../core/policy/fair.ts";
import { limitSchemas } from "../core/policy/limit-makers.ts";
import { ENDPOINT_ID, MOST_AT_ONCE, type EndpointsRules } from "../core/policy/endpoint-rules.ts";

/** Creates the schema on first use, so that a process without a rules file does not spend time on it. */
function makeSchema() {
  const { rate, units, shadow, limit } = limitSchemas();
  const limits = z.strictObject({
    rate: rate.optional(),
    burst: units.optional().describe("Calls that may start at once after an idle time."),
    shadow,
    concurrency: z
      .union([wholeNumber(1, 1_000_000, "calls"), z.literal("auto")], {
        error: "give a whole number from 1 to 1000000, or auto",
      })
      .optional()
      .describe(
        "Calls that may run at once, over all replicas; auto adapts the number to the latency of the calls.",
      ),
    limits: z.array(limit).optional().describe("More limits; a call needs room in all of them."),
  });
  const ofTier = limits.extend({
    shadow: shadow.describe("Rejected: only limits that all keys share can be shadows."),
  });
  const ofKeys = ofTier.extend({
    tier: z
      .string({ error: "give the name of a tier" })
      .optional()
      .describe("The tier whose limits apply. Limits in this entry override those of the tier."),
  });
  const ofLevel = z.union([ofKeys, z.null()]);
  const ofMember = ofTier
    .extend({
      shadow: shadow.describe("Rejected: only limits that all members share can be shadows."),
      drained: z
        .boolean({ error: "give true or false" })
        .optional()
        .describe("Whether the member gets no new calls."),
    })
    .nullable();
  const share = z.number().min(0.01).max(1).optional().describe("From 0.01 to 1.");
  const policy = limits.extend({
    perKey: z
      .union([ofKeys, z.array(ofLevel), z.record(z.string(), ofKeys)])
      .optional()
      .describe("Limits of each key: the same for all, by level (the widest first), or by name."),
    shares: z
      .strictObject({ critical: share, high: share, normal: share, low: share })
      .optional()
      .describe("The share of the horizon that each priority may fill."),
    fair: z
      .union([z.boolean(), fairSchema(rate)])
      .optional()
      .describe("How calls with different keys take turns; false: they start as they arrive."),
  });
  const bucket = policy
    .extend({
      members: z
        .record(z.string(), ofMember)
        .optional()
        .describe("Members of a pool to add or change, by name; null removes one."),
      prefer: z
        .union([z.literal("spread"), z.array(z.string())])
        .optional()
        .describe("The members of a pool to fill first, or spread."),
      stickyBy: z.literal("key").optional().describe("Keeps each key at one member of a pool."),
      stickyMs: wholeNumber(0, LONGEST_MS, "milliseconds")
        .optional()
        .describe("How much longer a call may wait for the member of its key."),
    })
    .nullable();
  const queue = z.strictObject(queueSettingSchemas());
  const ofEndpoint = {
    rate: rate.optional(),
    concurrency: wholeNumber(1, MOST_AT_ONCE, "calls")
      .optional()
      .describe("How many calls may run at once."),
  };
  const endpoint = z.strictObject(ofEndpoint);
  const tenant = z.strictObject({
    ...ofEndpoint,
    perEndpoint: endpoint.optional().describe("The limits of each of its endpoints."),
    ceiling: endpoint.optional().describe("The highest limits that its endpoints may set."),
    endpoints: z
      .record(ENDPOINT_ID, endpoint)
      .optional()
      .describe("The limits of single endpoints, by id."),
  });
  const sender = z.strictObject({
    perTenant: endpoint.optional().describe("The limits of each tenant, over all its endpoints."),
    perEndpoint: endpoint.optional().describe("The limits of each endpoint."),
    ceiling: endpoint.optional().describe("The highest limits that endpoints may set."),
    tenants: z
      .record(ENDPOINT_ID, tenant)
      .optional()
      .describe("The limits of single tenants, by id."),
    budgetWarnings: z
      .record(
        NAME,
        z.strictObject({
          tenant: ENDPOINT_ID.optional().describe(
            "The tenant that gets the warnings. Defaults to operator.",
          ),
        }),
      )
      .optional()
      .describe("The buckets whose warnings of budgets the sender's workers send, by name."),
  });
  return z.strictObject({
    $schema: z.string().optional().describe("The location of the schema, for editors."),
    version: wholeNumber(1, Number.MAX_SAFE_INTEGER, "versions")
      .optional()
      .describe(
        "The file with the greater version applies. Defaults to the file's modification time in ms since 1970, so a file that states a small number later counts as older.",
      ),
    tiers: z
      .record(NAME, ofTier)
      .optional()
      .describe("Named limits of keys, which the perKey of a bucket can refer to."),
    defaults: policy.optional().describe("Defaults for the buckets below."),
    buckets: z
      .record(NAME, bucket)
      .describe("The limits of buckets, by name. They override those in the code."),
    queues: z
      .record(NAME, queue)
      .optional()
      .describe("Settings of queues, by name. They override those in the code."),
    endpoints: z
      .record(NAME, sender)
      .optional()
      .describe(
        "The limits of tenants and endpoints, and the warnings to send, by the name of the webhook sender.",
      ),
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

/** The names that are allowed at the top level of a rules file. */
export const TOP_NAMES: readonly string[] = [
  "version",
  "tiers",
  "defaults",
  "buckets",
  "queues",
  "endpoints",
];
