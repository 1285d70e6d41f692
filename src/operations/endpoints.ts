/** Operations that show and change webhook endpoints. No result contains a secret. */
import * as z from "zod";
import type { Attempt, Endpoint, FoundWebhooks } from "../webhooks/index.ts";
import { assertUndone } from "./changes.ts";
import { BY_HAND, CURSOR, DATA, limitField, NAME, SENDER, agoField } from "./fields.ts";
import { operation, type AnyOperation, RefusedError, type Context } from "./operation.ts";
import { ATTEMPT, ENDPOINT, list, object, QUEUE_CHANGE, TEXT } from "./shapes.ts";
import { counted, factLines, type Shown } from "./text.ts";

const OF_SENDER = { sender: SENDER };
const OF_ENDPOINT = {
  ...OF_SENDER,
  tenant: NAME.describe("The tenant of the endpoint."),
  endpoint: NAME.describe("The id of the endpoint."),
};
const LOOK = { needs: "view", undoable: false } as const;
const OF_TARGET = { names: "of the target", data: "never" } as const;
const SHOWS_DATA = { names: "of the target", data: "on request" } as const;
const IN_SCOPE = { names: "in the scope", data: "never" } as const;

const senders = operation({
  ...LOOK,
  name: "sender.list",
  target: "all",
  summary: "The webhook senders",
  input: z.strictObject({}),
  answers: "Their names.",
  output: object({ senders: list(TEXT) }),
  privacy: IN_SCOPE,
  async run({ sluice, caller }) {
    const { listWebhooks } = await import("../webhooks/index.ts");
    return { senders: (await listWebhooks(sluice)).filter(caller.mayQueue) };
  },
  http: { path: "GET /api/v1/endpoints", tag: "endpoints" },
  cli: {
    command: "endpoints senders",
    examples: ["sluice endpoints senders"],
    show: (page: { readonly senders: readonly string[] }) => [
      { heads: ["sender"], rows: page.senders.map((each) => [each]) },
    ],
  },
});

const tenants = operation({
  ...LOOK,
  name: "tenant.list",
  target: "sender",
  summary: "The tenants that have endpoints",
  input: z.strictObject({ ...OF_SENDER, limit: limitField(20, 200), cursor: CURSOR }),
  answers: "The tenants by name, and the cursor of the next page.",
  output: object({ tenants: list(TEXT), "cursor?": TEXT }),
  privacy: OF_TARGET,
  run: async (context, { sender, ...page }) => (await context.sender(sender)).tenants.list(page),
  http: { path: "GET /api/v1/endpoints/:sender/tenants", tag: "endpoints" },
  cli: {
    command: "endpoints tenants",
    examples: ["sluice endpoints tenants --limit 1000"],
    show: (page: { readonly tenants: readonly string[]; readonly cursor?: string }) => [
      { heads: ["tenant"], rows: [...page.tenants.map((each) => [each]), ...next(page.cursor)] },
    ],
  },
});

const endpoints = operation({
  ...LOOK,
  name: "endpoint.list",
  target: "sender",
  summary: "A page of the endpoints of a sender, each with its status",
  input: z.strictObject({
    ...OF_SENDER,
    tenant: NAME.optional().describe("Only those of this tenant."),
    cursor: CURSOR,
    limit: limitField(25, 100),
  }),
  answers: "The endpoints by tenant and id, and the cursor of the next page.",
  output: object({ endpoints: list(ENDPOINT), "cursor?": TEXT }),
  privacy: OF_TARGET,
  run: async (context, { sender, ...page }) =>
    pageOf(await context.sender(sender), page, mayAct(context)),
  http: { path: "GET /api/v1/endpoints/:sender", tag: "endpoints" },
  cli: {
    command: "endpoints list",
    about: "the endpoints of a tenant",
    examples: ["sluice endpoints list --tenant acme"],
    defaults: { limit: 20 },
    show(page: { readonly endpoints: readonly EndpointFacts[]; readonly cursor?: string }) {
      if (page.endpoints.length === 0) return "The tenant has no endpoints.";
      const rows = page.endpoints.map((each) => [
        each.id,
        // Show only the origin, because a path may contain a secret.
        new URL(each.url).origin,
        each.types?.join(" ") ?? "all",
        stateOf(each),
      ]);
      return [
        {
          heads: ["endpoint", "sends to", "types", "state"],
          rows: [...rows, ...next(page.cursor)],
        },
      ];
    },
  },
});

const endpoint = operation({
  ...LOOK,
  name: "endpoint.look",
  target: "endpoint",
  summary: "One endpoint: its status, and its last attempts",
  input: z.strictObject({
    ...OF_ENDPOINT,
    data: DATA,
    limit: z.int().min(1).max(200).default(25).describe("The most attempts."),
  }),
  answers: "The endpoint.",
  output: object({ endpoint: ENDPOINT, attempts: list(ATTEMPT) }),
  privacy: SHOWS_DATA,
  async run(context, { sender, tenant, endpoint: id, data, limit }) {
    const found = await context.sender(sender);
    const [facts, { entries }] = await Promise.all([
      oneOf(found, { tenant, id }, mayAct(context)),
      found.attempts.list({ tenant, endpoint: id, limit }),
    ]);
    return { endpoint: facts, attempts: entries.map((attempt) => shown(attempt, data)) };
  },
  http: { path: "GET /api/v1/endpoints/:sender/:tenant/:endpoint", tag: "endpoints" },
  cli: {
    command: "endpoints show <id>",
    args: ["endpoint"],
    about: "one endpoint: its settings and its status",
    examples: ["sluice endpoints show billing --tenant acme"],
    hidden: ["limit"],
    result: ({ endpoint: facts, attempts }) => ({ ...facts, attempts }),
    show(facts: EndpointFacts) {
      const { url, types, rate, concurrency, secrets, headers, ordered, status } = facts;
      return factLines(
        [
          ["url", url],
          ["state", stateOf(facts)],
          ["types", types?.join(" ") ?? "all"],
          ["rate", rate === undefined ? "that of the sender" : JSON.stringify(rate)],
          ["concurrency", String(concurrency ?? "that of the sender")],
          ["ordered", ordered ? `yes, ${counted(status.waiting, "pending message")}` : "no"],
          ["secrets", `${secrets} active`],
          ["headers", headers.join(", ") || "none"],
        ],
        13,
      );
    },
  },
});

const log = operation({
  ...LOOK,
  name: "endpoint.log",
  target: "sender",
  summary: "The attempts at an endpoint, or of a message, the newest first",
  input: z.strictObject({
    ...OF_SENDER,
    tenant: NAME.describe("The tenant of the endpoint."),
    endpoint: NAME.optional().describe("The id of the endpoint."),
    message: NAME.optional().describe("The attempts of this message, all on one page."),
    since: agoField(
      "since",
      "Those that ended then or later, in ms since 1970.",
      "those of this time, such as 2h",
    ),
    limit: limitField(20, 200),
    cursor: CURSOR,
    data: DATA,
  }),
  answers: "The attempts, and the cursor of the next page.",
  output: object({ entries: list(ATTEMPT), "cursor?": TEXT }),
  privacy: SHOWS_DATA,
  async run(context, { sender, data, message, since, limit, cursor, ...whose }) {
    const { attempts } = await context.sender(sender);
    const page = message === undefined ? { limit, cursor, since } : { message };
    const found = await attempts.list({ ...whose, ...page });
    return { ...found, entries: found.entries.map((attempt) => shown(attempt, data)) };
  },
  http: { path: "GET /api/v1/endpoints/:sender/log", tag: "endpoints" },
  cli: {
    command: "endpoints log [id]",
    args: ["endpoint"],
    about: "the attempts at an endpoint, or of a message, the newest first",
    examples: ["sluice endpoints log billing --since 2h --tenant acme"],
    show: showLog,
  },
});

function showLog(page: {
  readonly entries: readonly Omit<Attempt, "answer">[];
  readonly cursor?: string;
}): Shown {
  if (page.entries.length === 0) return "No attempt matches.";
  const rows = page.entries.map((entry) => [
    new Date(entry.atMs).toISOString(),
    entry.message,
    entry.endpoint,
    `${entry.attempt}${entry.purpose === "send" ? "" : ` (${entry.purpose})`}`,
    entry.outcome === "ours" ? "not sent" : entry.outcome,
    String(entry.status ?? "-"),
    `${Math.round(entry.durationMs)} ms`,
    entry.error ?? "",
  ]);
  const heads = ["ended", "message", "endpoint", "attempt", "outcome", "status", "took", "error"];
  return [{ heads, rows: [...rows, ...next(page.cursor)] }];
}

const STEER = {
  needs: "act",
  privacy: OF_TARGET,
  target: "endpoint",
  input: z.strictObject({ ...OF_ENDPOINT, ...BY_HAND }),
  answers:
    "Whether it was changed, and the endpoint after the change, unless it could not be read.",
  output: object({ changed: { type: "boolean" }, "endpoint?": ENDPOINT }),
  undoable: true,
} as const;

const disable = operation({
  ...STEER,
  name: "endpoint.disable",
  summary: "Stops sending to an endpoint; its pending messages fail, and can be recovered",
  async run(context, { sender, tenant, endpoint: id }) {
    const found = await context.sender(sender);
    const changed = await found.endpoints.disable({ tenant, id }, context.byHand);
    return { changed, endpoint: await context.beside(oneOf(found, { tenant, id }, true)) };
  },
  http: {
    path: "POST /api/v1/endpoints/:sender/:tenant/:endpoint/disable",
    tag: "endpoints",
  },
  cli: {
    command: "endpoints disable <id>",
    args: ["endpoint"],
    about: "stops sending to an endpoint; its pending messages fail, and can be recovered",
    examples: ['sluice endpoints disable billing --reason "asked by phone" --tenant acme'],
    result: ({ changed }) => ({ changed }),
    show: ({ changed }: { readonly changed: boolean }, { endpoint: id }) =>
      changed ? `${String(id)} is disabled.` : `${String(id)} was already disabled.`,
  },
  form: {
    title: "Disable {name}",
    fields: ["reason"],
    confirm: "Disable endpoint",
    done: "{name} is disabled.",
    danger: true,
  },
});

const enable = operation({
  ...STEER,
  name: "endpoint.enable",
  summary: "Sends to an endpoint again at once, and resets its failures",
  async run(context, { sender, tenant, endpoint: id }) {
    const found = await context.sender(sender);
    const changed = await found.endpoints.enable({ tenant, id }, context.byHand);
    return { changed, endpoint: await context.beside(oneOf(found, { tenant, id }, true)) };
  },
  http: { path: "POST /api/v1/endpoints/:sender/:tenant/:endpoint/enable", tag: "endpoints" },
  cli: {
    command: "endpoints enable <id>",
    args: ["endpoint"],
    about: "sends to an endpoint again, and resets its failures",
    examples: ["sluice endpoints enable billing --tenant acme"],
    result: ({ changed }) => ({ changed }),
    show: ({ changed }: { readonly changed: boolean }, { endpoint: id }) =>
      changed
        ? `${String(id)} is enabled. Send again what has failed: sluice endpoints recover.`
        : `${String(id)} was not disabled.`,
  },
  form: {
    title: "Resume sending to {name}",
    fields: [],
    confirm: "Resume sending",
    done: "Sending to {name} resumed.",
  },
});

const remove = operation({
  ...STEER,
  name: "endpoint.remove",
  summary: "Removes an endpoint, its secret and its log for good",
  answers: "That it was removed.",
  output: object({ removed: { type: "boolean" } }),
  undoable: false,
  async run(context, { sender, tenant, endpoint: id }) {
    const found = await context.sender(sender);
    const removed = await found.endpoints.remove({ tenant, id }, context.byHand);
    if (!removed) throw endpointMissing({ tenant, id });
    return { removed };
  },
  http: { path: "POST /api/v1/endpoints/:sender/:tenant/:endpoint/remove", tag: "endpoints" },
  cli: {
    command: "endpoints remove <id>",
    args: ["endpoint"],
    confirm: "its secret and its log cannot be restored",
    examples: ["sluice endpoints remove billing --yes --tenant acme"],
    show: (_removed, { endpoint: id }) => `${String(id)} was removed.`,
  },
});

const undo = operation({
  name: "endpoint.undo",
  target: "sender",
  summary: "Undoes that an endpoint was disabled or enabled",
  input: z.strictObject({
    ...OF_SENDER,
    id: z.string().optional().describe("The change to undo. Defaults to the last one."),
    ...BY_HAND,
  }),
  answers: "The change that was undone.",
  output: object({ "undone?": QUEUE_CHANGE }),
  needs: "act",
  privacy: OF_TARGET,
  undoable: false,
  async run(context, { sender, id }) {
    const { endpoints: all } = await context.sender(sender);
    return { undone: await all.undo({ id, ...context.byHand }) };
  },
  http: { path: "POST /api/v1/endpoints/:sender/undo", tag: "endpoints" },
  cli: {
    command: "endpoints undo",
    about: "undoes that an endpoint was disabled or enabled: the last time, or by --id",
    examples: ["sluice endpoints undo"],
    result(made) {
      assertUndone(made);
      return made;
    },
    show: ({ undone }: { readonly undone: { action: string; endpoint?: { id?: string } } }) =>
      `${undone.action} of ${undone.endpoint?.id} was undone.`,
  },
});

function mayAct({ caller }: Context): boolean {
  return caller.mayUse("act");
}

interface Ref {
  readonly tenant: string;
  readonly id: string;
}

/** Reads a page of endpoints after the cursor, sorted by tenant and id. */
async function pageOf(
  sender: FoundWebhooks,
  {
    tenant: only,
    cursor = "",
    limit,
  }: { tenant?: string | undefined; cursor?: string | undefined; limit: number },
  withPaths: boolean,
): Promise<object> {
  const [, afterTenant = "", afterId = ""] = /^([^/]*)\/([^/]*)$/.exec(cursor) ?? [];
  const refs: Ref[] = [];
  let tenant = only ?? (afterTenant === "" ? await nextTenant(sender, "") : afterTenant);
  let after = tenant === afterTenant ? afterId : "";
  let isMore = false;
  while (tenant !== undefined && !isMore) {
    const page = await sender.endpoints.list({
      tenant,
      limit: limit - refs.length + 1,
      ...(after === "" ? {} : { cursor: after }),
    });
    for (const { id } of page.endpoints) refs.push({ tenant, id });
    isMore = refs.length > limit;
    after = "";
    tenant = only === undefined ? await nextTenant(sender, tenant) : undefined;
  }
  const shownRefs = refs.slice(0, limit);
  const found = await Promise.all(shownRefs.map((ref) => statusOf(sender, ref, withPaths)));
  const last = shownRefs.at(-1);
  return {
    // Leave out endpoints that were removed in the meantime.
    endpoints: found.filter((each) => each !== undefined),
    ...(isMore && last !== undefined ? { cursor: `${last.tenant}/${last.id}` } : {}),
  };
}

async function nextTenant(sender: FoundWebhooks, after: string): Promise<string | undefined> {
  const { tenants: found } = await sender.tenants.list({
    limit: 1,
    ...(after === "" ? {} : { cursor: after }),
  });
  return found[0];
}

async function oneOf(sender: FoundWebhooks, ref: Ref, withPath: boolean): Promise<EndpointFacts> {
  const found = await statusOf(sender, ref, withPath);
  if (found !== undefined) return found;
  throw endpointMissing(ref);
}

function endpointMissing({ tenant, id }: Ref): RefusedError {
  const name = JSON.stringify(`${tenant}/${id}`);
  return new RefusedError("ERR_ENDPOINT_MISSING", `There is no endpoint ${name}.`);
}

type EndpointFacts = NonNullable<Awaited<ReturnType<typeof statusOf>>>;

async function statusOf(sender: FoundWebhooks, ref: Ref, withPath: boolean) {
  const [found, status] = await Promise.all([sender.endpoints.get(ref), sender.status(ref)]);
  if (found === undefined || status === undefined) return undefined;
  const { lastAttempt, lastFailure } = status;
  return {
    ...factsOf(found, withPath),
    status: {
      ...status,
      lastAttempt: lastAttempt && shown(lastAttempt, false),
      lastFailure: lastFailure && shown(lastFailure, false),
    },
  };
}

/**
 * Returns the settings and the state of an endpoint that operators may see. The path is shown only
 * with `withPath`, because it may be a secret. The query is never shown, because it may contain a
 * token.
 */
function factsOf(found: Endpoint, withPath: boolean) {
  const { tenant, id, types, rate, concurrency, ordered, description, headers, secrets } = found;
  const { disabled, createdAtMs, changedAtMs } = found;
  const { origin, pathname, search } = new URL(found.url);
  const path = withPath ? pathname + (search && "?…") : pathname + search === "/" ? "/" : "/…";
  const url = origin + path;
  const settings = { url, types, rate, concurrency, ordered, description, headers, secrets };
  return { tenant, id, ...settings, disabled, createdAtMs, changedAtMs };
}

function shown(attempt: Attempt, withAnswer: boolean): Omit<Attempt, "answer"> {
  const { answer: _hidden, ...facts } = attempt;
  return withAnswer ? attempt : facts;
}

function stateOf({ disabled }: Pick<Endpoint, "disabled">): string {
  return disabled === undefined ? "enabled" : `disabled: ${disabled.reason}`;
}

function next(cursor: string | undefined): string[][] {
  return cursor === undefined ? [] : [[`more: --cursor ${cursor}`]];
}

export const ENDPOINT_OPERATIONS: readonly AnyOperation[] = [
  senders,
  tenants,
  endpoints,
  endpoint,
  log,
  disable,
  enable,
  remove,
  undo,
];
