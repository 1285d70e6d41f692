/** Operations that show the change log. */
import * as z from "zod";
import { InvalidOptionError } from "../core/errors.ts";
import type {
  BucketChange,
  ChangeFacts,
  LoggedChange,
  QueueChange,
} from "../core/stores/insight/changes.ts";
import { limitField, NAME } from "./fields.ts";
import { assertInScope, operation, type AnyOperation } from "./operation.ts";
import { list, LOGGED_CHANGE, object, TEXT } from "./shapes.ts";
import { counted, duration, type Shown } from "./text.ts";

/** Thrown when no change can be undone. */
export class NothingToUndoError extends Error {
  override readonly name = "NothingToUndoError";
  constructor() {
    super("There is no change to undo.");
  }
}

export function assertUndone({ undone }: { readonly undone?: unknown }): void {
  if (undone === undefined) throw new NothingToUndoError();
}

const changes = operation({
  name: "change.list",
  target: "all",
  summary: "Changes by operators and rules: what, who and why, the newest first",
  input: z.strictObject({
    bucket: NAME.optional().describe("Only those of this bucket."),
    queue: NAME.optional().describe(
      "Only those of this queue, or of the endpoints of this sender.",
    ),
    before: z.string().optional().describe("The `next` of the previous page."),
    limit: limitField(100, 1_000),
  }),
  answers: "The changes, and the start of the next page if there may be one.",
  output: object({ changes: list(LOGGED_CHANGE), "next?": TEXT }),
  needs: "view",
  privacy: { names: "in the scope", data: "never" },
  undoable: false,
  async run({ sluice, caller }, { limit, ...asked }) {
    if (asked.bucket !== undefined) assertInScope(caller, "bucket", asked.bucket);
    if (asked.queue !== undefined) assertInScope(caller, "queue", asked.queue);
    const found: readonly LoggedChange[] = await sluice.changes({ ...asked, limit });
    const next = found.length === limit ? found.at(-1)?.id : undefined;
    const mine = found.filter((change) =>
      change.bucket === undefined ? caller.mayQueue(change.queue) : caller.mayBucket(change.bucket),
    );
    return next === undefined ? { changes: mine } : { changes: mine, next };
  },
  http: { path: "GET /api/v1/changes", tag: "facts" },
  cli: {
    command: "changes [name]",
    args: [],
    about: "changes by operators and rules: what, who and why, the newest first",
    examples: ["sluice changes stripe --limit 5", "sluice changes charges --queue"],
    defaults: { limit: 20 },
    hidden: ["bucket", "queue"],
    options: [
      ["--queue", "the name is that of a queue, or of a sender of webhooks, and no bucket's"],
    ],
    read({ queue }, [name]) {
      if (queue !== true) return name === undefined ? {} : { bucket: name };
      if (name !== undefined) return { queue: name };
      const remedy = "name the queue, or leave --queue out for all changes";
      throw new InvalidOptionError({
        where: "sluice changes",
        option: "name",
        value: name,
        remedy,
      });
    },
    result: ({ changes: found }) => found,
    show: showChanges,
  },
});

function showChanges(found: readonly LoggedChange[]): Shown {
  if (found.length === 0) return "No changes yet.";
  const rows = found.map((change) => [
    change.id,
    new Date(change.atMs).toISOString(),
    change.bucket ?? endpointText(change),
    change.action,
    change.by,
    change.bucket === undefined ? factsText(change) : effectOf(change),
    change.reason ?? "-",
  ]);
  return [{ heads: ["id", "time", "target", "action", "by", "change", "reason"], rows }];
}

/** Formats the target of a change: `charges`, or `webhooks: acme/billing`. */
function endpointText({ queue, endpoint }: QueueChange): string {
  return endpoint === undefined ? queue : `${queue}: ${endpoint.tenant}/${endpoint.id ?? "*"}`;
}

/**
 * Formats the effect of a change of a queue or an endpoint: the values that differ before and after
 * the change.
 */
function factsText(change: QueueChange): string {
  const { key, filter, jobs, before, after, forMs, failed, undoneBy } = change;
  const names = Object.keys({ ...before, ...after });
  const others = names.filter((name) => before?.[name] !== after?.[name]);
  const changed = others.map((name) => `${name} ${said(name, before)} -> ${said(name, after)}`);
  const about = { ...(key !== undefined && { key }), ...filter };
  const parts = [
    ...(jobs === undefined ? [] : [counted(jobs, "job")]),
    ...(Object.keys(about).length === 0 ? [] : [`of ${JSON.stringify(about)}`]),
    ...(changed.length === 0 ? [] : [changed.join(", ")]),
    ...(forMs === undefined ? [] : [`for ${duration(forMs)}`]),
    ...(failed === undefined ? [] : ["(failed)"]),
    ...(undoneBy === undefined ? [] : ["(undone)"]),
  ];
  return parts.length === 0 ? "-" : parts.join(" ");
}

function said(name: string, facts: ChangeFacts | undefined): string {
  const value = facts?.[name];
  if (value === undefined) return "-";
  return name.endsWith("Ms") && typeof value === "number" ? duration(value) : String(value);
}

/** Formats what is granted: `"usd:month +50"`. */
function grantsText(granted: Readonly<Record<string, number>>): string {
  const texts = Object.entries(granted).map(([budget, amount]) => `${budget} +${amount}`);
  return texts.length === 0 ? "balances" : texts.join(", ");
}

function effectOf(change: BucketChange): string {
  const { subject, before, after, key, keys, forMs, failed, undoneBy } = change;
  const whose = key ?? keys;
  const about = whose === undefined ? "" : ` of ${JSON.stringify(whose)}`;
  const pauses = [before, after].map(({ pausedForMs }) =>
    pausedForMs === 0 ? "running" : `paused ${duration(pausedForMs)}`,
  );
  const grants = [before, after].map(({ granted = {} }) => grantsText(granted));
  const policies = `${before.policy} -> ${after.policy}`;
  const changed = { pause: pauses.join(" -> "), budget: grants.join(" -> "), policy: policies };
  const what = changed[subject];
  const end = forMs === undefined ? "" : ` for ${duration(forMs)}`;
  const fate = failed === undefined ? (undoneBy === undefined ? "" : " (undone)") : " (failed)";
  return `${what}${about}${end}${fate}`;
}

export const CHANGE_OPERATIONS: readonly AnyOperation[] = [changes];
