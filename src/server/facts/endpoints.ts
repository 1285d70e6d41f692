/** `/api/v1/endpoints/…`: where senders send webhooks to, and how these endpoints are; never a secret of theirs. */
import type { FastifyInstance, FastifyRequest } from "fastify";
import {
  listWebhooks,
  type Attempt,
  type Endpoint,
  type FoundWebhooks,
} from "../../webhooks/index.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import { accessOf, assertMaySee } from "../access/access.ts";
import { HttpProblem, readBeside } from "../problem.ts";
import { senderNamed } from "./named.ts";
import { answer, list, object, PROBLEM, QUEUE_CHANGE } from "./schemas.ts";
import { byHandOf, BY_WHOM, UNDO_ID, type SaidBy } from "./steering.ts";

const TEXT = { type: "string" };
const NUMBER = { type: "number" };
const COUNT = { type: "integer", minimum: 0 };
const WRONG = { 400: PROBLEM, 401: PROBLEM, 403: PROBLEM, 404: PROBLEM, 503: PROBLEM };
const NAME = { type: "string", maxLength: 1_024 };
const OF_SENDER = object({ sender: NAME });
const OF_ENDPOINT = object({ sender: NAME, tenant: NAME, endpoint: NAME });
const VIEW = { needs: "view", queue: "sender" } as const;
const STEER = { needs: "act", queue: "sender" } as const;

const ATTEMPT = object(
  {
    message: TEXT,
    endpoint: TEXT,
    atMs: NUMBER,
    attempt: COUNT,
    purpose: { type: "string", enum: ["send", "test", "replay"] },
    outcome: { ...TEXT, description: '"success", "server-error", "timeout" and the like.' },
    status: COUNT,
    durationMs: NUMBER,
    error: TEXT,
    by: TEXT,
    answer: { ...TEXT, description: "The first of what was answered; only if it was asked for." },
  },
  ["status", "error", "by", "answer"],
);

const STATUS = object(
  {
    state: { type: "string", enum: ["well", "failing", "left alone", "disabled"] },
    leftAloneForMs: { ...NUMBER, description: "For how long nothing is sent to it." },
    failingSinceMs: { ...NUMBER, description: "In ms since 1970." },
    failures: { ...COUNT, description: "Attempts in a row that failed." },
    waiting: { ...COUNT, description: "Messages that are due and wait." },
    attemptsInLastMinute: COUNT,
    limits: {
      ...list(object({ name: TEXT, value: { anyOf: [NUMBER, TEXT] }, setBy: TEXT })),
      description:
        'Its limits and those of its tenant, and who set each: "own", "rules" or "code".',
    },
    lastAttempt: ATTEMPT,
    lastFailure: { ...ATTEMPT, description: "Of the last ten attempts." },
  },
  ["failingSinceMs", "lastAttempt", "lastFailure"],
);

const ENDPOINT = object(
  {
    tenant: TEXT,
    id: TEXT,
    url: {
      ...TEXT,
      description:
        'Without its query, which may be secret, and without its path unless the token has the role "act".',
    },
    types: list(TEXT),
    rate: { description: "Its own; without it, the sender's holds." },
    concurrency: COUNT,
    ordered: { type: "boolean" },
    description: TEXT,
    headers: { ...list(TEXT), description: "Their names alone." },
    secrets: { ...COUNT, description: "How many sign." },
    disabled: object({ atMs: NUMBER, why: TEXT }),
    createdAtMs: NUMBER,
    changedAtMs: NUMBER,
    status: STATUS,
  },
  ["types", "rate", "concurrency", "ordered", "description", "disabled"],
);

interface OfSender {
  readonly Params: { readonly sender: string };
}

interface OfEndpoint {
  readonly Params: { readonly sender: string; readonly tenant: string; readonly endpoint: string };
}

export function endpointRoutes(app: FastifyInstance, sluice: Sluice): void {
  app.get(
    "/api/v1/endpoints",
    {
      config: { needs: "view" },
      schema: {
        summary: "The senders of webhooks",
        tags: ["endpoints"],
        response: { 200: answer("Their names.", object({ senders: list(TEXT) })), ...WRONG },
      },
    },
    async (request) => {
      const { mayQueue } = accessOf(request);
      return { senders: (await listWebhooks(sluice)).filter(mayQueue) };
    },
  );
  app.get<OfSender & { Querystring: { tenant?: string; cursor?: string; limit: number } }>(
    "/api/v1/endpoints/:sender",
    {
      config: VIEW,
      schema: {
        summary: "A page of the endpoints of a sender, each with how it is",
        tags: ["endpoints"],
        params: OF_SENDER,
        querystring: {
          type: "object",
          additionalProperties: false,
          properties: {
            tenant: { type: "string", maxLength: 100, description: "Those of one tenant alone." },
            cursor: { type: "string", maxLength: 201, description: "That of the page before." },
            limit: { type: "integer", minimum: 1, maximum: 100, default: 25 },
          },
        },
        response: {
          200: answer(
            "The endpoints by tenant and id, and the cursor of the next page.",
            object({ endpoints: list(ENDPOINT), cursor: TEXT }, ["cursor"]),
          ),
          ...WRONG,
        },
      },
    },
    async (request) => {
      const sender = await senderNamed(sluice, request.params.sender);
      return pageOf(sender, request.query, mayAct(request));
    },
  );
  app.get<OfEndpoint & { Querystring: { data: boolean; limit: number } }>(
    "/api/v1/endpoints/:sender/:tenant/:endpoint",
    {
      config: VIEW,
      schema: {
        summary: "One endpoint: how it is, and its last attempts",
        tags: ["endpoints"],
        params: OF_ENDPOINT,
        querystring: {
          type: "object",
          additionalProperties: false,
          properties: {
            data: {
              type: "boolean",
              default: false,
              description:
                'Adds what it answered, which may be private: only for tokens of the role "act".',
            },
            limit: { type: "integer", minimum: 1, maximum: 200, default: 25 },
          },
        },
        response: {
          200: answer("The endpoint.", object({ endpoint: ENDPOINT, attempts: list(ATTEMPT) })),
          ...WRONG,
        },
      },
    },
    async (request) => {
      const { query } = request;
      const { sender, tenant, endpoint: id } = request.params;
      assertMaySee(request, query);
      const found = await senderNamed(sluice, sender);
      const { data, limit } = query;
      const [endpoint, { entries }] = await Promise.all([
        oneOf(found, { tenant, id }, mayAct(request)),
        found.attempts.list({ tenant, endpoint: id, limit }),
      ]);
      return { endpoint, attempts: entries.map((attempt) => shown(attempt, data)) };
    },
  );
  steeringRoutes(app, sluice);
}

function steeringRoutes(app: FastifyInstance, sluice: Sluice): void {
  const params = OF_ENDPOINT;
  const response = {
    200: answer(
      "The endpoint as it is now, unless it could not be read.",
      object({ endpoint: ENDPOINT }, ["endpoint"]),
    ),
    ...WRONG,
  };
  app.post<OfEndpoint & { Body?: SaidBy }>(
    "/api/v1/endpoints/:sender/:tenant/:endpoint/disable",
    {
      config: STEER,
      schema: {
        summary: "Sends nothing more to an endpoint; what waits for it fails, and can be recovered",
        tags: ["endpoints"],
        params,
        body: { type: "object", additionalProperties: false, properties: BY_WHOM },
        response,
      },
      preValidation: async (request) => void (request.body ??= {}),
    },
    async (request) => {
      const { sender, tenant, endpoint: id } = request.params;
      const found = await senderNamed(sluice, sender);
      const { why } = request.body ?? {};
      await found.endpoints.disable({ tenant, id, why }, byHandOf(request, request.body ?? {}));
      note(request, "disable");
      return { endpoint: await readBeside(request, oneOf(found, { tenant, id }, true)) };
    },
  );
  app.post<OfEndpoint & { Body?: SaidBy }>(
    "/api/v1/endpoints/:sender/:tenant/:endpoint/enable",
    {
      config: STEER,
      schema: {
        summary: "Sends to an endpoint again at once, as to one that never failed",
        tags: ["endpoints"],
        params,
        body: { type: "object", additionalProperties: false, properties: BY_WHOM },
        response,
      },
      preValidation: async (request) => void (request.body ??= {}),
    },
    async (request) => {
      const { sender, tenant, endpoint: id } = request.params;
      const found = await senderNamed(sluice, sender);
      await found.endpoints.enable({ tenant, id }, byHandOf(request, request.body ?? {}));
      note(request, "enable");
      return { endpoint: await readBeside(request, oneOf(found, { tenant, id }, true)) };
    },
  );
  app.post<OfSender & { Body?: SaidBy & { readonly id?: string } }>(
    "/api/v1/endpoints/:sender/undo",
    {
      config: STEER,
      schema: {
        summary: "Takes back that an endpoint was disabled or enabled",
        tags: ["endpoints"],
        params: OF_SENDER,
        body: {
          type: "object",
          additionalProperties: false,
          properties: { id: UNDO_ID, ...BY_WHOM },
        },
        response: {
          200: answer("What was taken back.", object({ undone: QUEUE_CHANGE }, ["undone"])),
          409: PROBLEM,
          ...WRONG,
        },
      },
      preValidation: async (request) => void (request.body ??= {}),
    },
    async (request) => {
      const { endpoints } = await senderNamed(sluice, request.params.sender);
      const { id, ...said } = request.body ?? {};
      const undone = await endpoints.undo({ id, ...byHandOf(request, said) });
      note(request, "undo");
      return { undone };
    },
  );
}

function mayAct(request: FastifyRequest): boolean {
  return accessOf(request).mayUse("act");
}

function note(request: FastifyRequest, action: "disable" | "enable" | "undo"): void {
  const { name: by } = accessOf(request);
  request.log.info({ ...(request.params as object), action, by }, "steered by hand");
}

interface Ref {
  readonly tenant: string;
  readonly id: string;
}

/** Endpoints by tenant and id, after the one that the cursor names. */
async function pageOf(
  sender: FoundWebhooks,
  { tenant: only, cursor = "", limit }: { tenant?: string; cursor?: string; limit: number },
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
    // An endpoint that was removed since is left out.
    endpoints: found.filter((each) => each !== undefined),
    ...(isMore && last !== undefined ? { cursor: `${last.tenant}/${last.id}` } : {}),
  };
}

async function nextTenant(sender: FoundWebhooks, after: string): Promise<string | undefined> {
  const { tenants } = await sender.tenants.list({
    limit: 1,
    ...(after === "" ? {} : { cursor: after }),
  });
  return tenants[0];
}

async function oneOf(sender: FoundWebhooks, ref: Ref, withPath: boolean): Promise<object> {
  const found = await statusOf(sender, ref, withPath);
  if (found !== undefined) return found;
  const name = `${ref.tenant}/${ref.id}`;
  throw new HttpProblem("ERR_ENDPOINT_MISSING", `There is no endpoint ${JSON.stringify(name)}.`);
}

async function statusOf(
  sender: FoundWebhooks,
  ref: Ref,
  withPath: boolean,
): Promise<object | undefined> {
  const [endpoint, status] = await Promise.all([sender.endpoints.get(ref), sender.status(ref)]);
  if (endpoint === undefined || status === undefined) return undefined;
  const { lastAttempt, lastFailure } = status;
  return {
    ...factsOf(endpoint, withPath),
    status: {
      ...status,
      lastAttempt: lastAttempt && shown(lastAttempt, false),
      lastFailure: lastFailure && shown(lastFailure, false),
    },
  };
}

/** What an operator sees of an endpoint: nothing of what its owner keeps to himself. Paths often are secrets of chats. */
function factsOf(endpoint: Endpoint, withPath: boolean): object {
  const { tenant, id, types, rate, concurrency, ordered, description, headers, secrets } = endpoint;
  const { disabled, createdAtMs, changedAtMs } = endpoint;
  const { origin, pathname, search } = new URL(endpoint.url);
  const path = withPath ? pathname + (search && "?…") : pathname + search === "/" ? "/" : "/…";
  const url = origin + path;
  const settings = { url, types, rate, concurrency, ordered, description, headers, secrets };
  return { tenant, id, ...settings, disabled, createdAtMs, changedAtMs };
}

function shown(attempt: Attempt, withAnswer: boolean): object {
  const { answer: said, ...facts } = attempt;
  return withAnswer ? { ...facts, answer: said } : facts;
}
