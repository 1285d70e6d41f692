import { reasonOf } from "../core/describe.ts";
import type { Logger } from "../core/logger.ts";
import { formatPolicy, readPolicyElsewhere, type Policy } from "../core/policy/policy.ts";
import type { NewChange, NewQueueChange, SteeredState } from "../core/stores/insight/changes.ts";
import type { InsightStore } from "../core/stores/insight/store.ts";

/** The author of changes that rules files make. */
const RULES = "rules";
/** The state before the change of a bucket that only the rules mention. */
const NOTHING: SteeredState = { policy: "none", source: "code", text: "", pausedForMs: 0 };

export interface LogParts {
  readonly insight: InsightStore;
  readonly logger: Logger;
}

export interface RuledChange {
  readonly bucket: string;
  /**
   * The policy text that the rules defined before the change, and the policy that they define now.
   * Each is undefined if the rules did not mention the bucket then.
   */
  readonly earlier: string | undefined;
  readonly policy: Policy | undefined;
  readonly code: Policy | undefined;
}

/**
 * Records the rule changes that changed a policy in the change log. The process's logger reports
 * changes that cannot be recorded.
 */
export async function noteRuled(
  changes: readonly RuledChange[],
  reason: string,
  parts: LogParts,
): Promise<void> {
  const made = changes.filter(({ earlier, policy }) => earlier !== policy?.text);
  const notes = made.map(({ bucket, earlier, policy, code }) => {
    const before = earlier === undefined ? undefined : readPolicyElsewhere(bucket, earlier);
    return { bucket, subject: "policy", ...stateOf(before, policy, code) } as const;
  });
  await noteAll(notes, reason, parts);
}

/** Records rule changes to the settings of queues and webhook senders in the change log. */
export async function noteRuledSettings(
  changes: readonly Pick<NewQueueChange, "queue" | "before" | "after">[],
  reason: string,
  parts: LogParts,
): Promise<void> {
  await noteAll(changes, reason, parts);
}

async function noteAll(
  changes: readonly object[],
  reason: string,
  { insight, logger }: LogParts,
): Promise<void> {
  const how = { action: "rules", by: RULES, reason };
  const noting = changes.map((change) => insight.noteChange({ ...change, ...how } as NewChange));
  const failed = (await Promise.allSettled(noting)).find(({ status }) => status === "rejected");
  if (failed === undefined) return;
  const why = reasonOf((failed as PromiseRejectedResult).reason);
  logger.warn(
    { reason: why },
    `Could not record the changes by the rules in the change log: ${why}`,
  );
}

function stateOf(
  before: Policy | undefined,
  after: Policy | undefined,
  code: Policy | undefined,
): { readonly before: SteeredState; readonly after: SteeredState } {
  const ofCode = code === undefined ? NOTHING : steered(code, "code");
  return {
    before: before === undefined ? ofCode : steered(before, "rules"),
    after: after === undefined ? ofCode : steered(after, "rules"),
  };
}

function steered(policy: Policy, source: SteeredState["source"]): SteeredState {
  return { policy: formatPolicy(policy), source, text: policy.text, pausedForMs: 0 };
}
