/** Creates the HTTP routes of the operations, with their OpenAPI. */
import type { FastifyInstance, FastifyRequest } from "fastify";
import { OPERATIONS } from "../../operations/index.ts";
import {
  inputSchemaOf,
  perform,
  scopeOf,
  type AnyOperation,
  type Door,
  type OtherPath,
} from "../../operations/operation.ts";
import { accessOf } from "../access/access.ts";
import { STATUS_OF_CODE } from "../problem.ts";
import { replyTo } from "./mcp.ts";

type Fields = Readonly<Record<string, unknown>>;

export function operationRoutes(
  app: FastifyInstance,
  door: Omit<Door, "caller">,
  mcpAllow: "view" | "act" = "act",
): void {
  for (const each of OPERATIONS) {
    const { path, also = [] } = each.http;
    for (const at of [{ path }, ...also] as OtherPath<unknown>[]) addRoute(app, door, each, at);
  }
  app.post(
    "/mcp",
    {
      config: { needs: "view" },
      schema: { summary: "MCP: the operations as tools", tags: ["mcp"] },
    },
    async (request, reply) => {
      const fail = (error: unknown): void =>
        request.log.error({ err: error }, "An MCP tool failed.");
      const own = doorOf(door, request);
      const { caller } = own;
      const mayUse: typeof caller.mayUse = (needs) =>
        caller.mayUse(needs) && (needs === "view" || mcpAllow === "act");
      const answer = await replyTo(request.body, { ...own, caller: { ...caller, mayUse }, fail });
      if (answer === undefined) return reply.code(202).send();
      return answer;
    },
  );
}

function addRoute(
  app: FastifyInstance,
  door: Omit<Door, "caller">,
  called: AnyOperation,
  at: OtherPath<unknown>,
): void {
  const { needs = called.needs, summary = called.summary, output = called.output } = at;
  const { defaults, check } = at;
  const [method = "", url = ""] = at.path.split(" ");
  const scope = scopeOf(called);
  const inPath = [...url.matchAll(/:(\w+)/g)].map(([, name]) => name!);
  app.route({
    method,
    url,
    config: { needs, ...(scope && { [scope === "bucket" ? "bucket" : "queue"]: scope }) },
    schema: {
      summary,
      tags: [called.http.tag],
      ...requestSchema(called, { inPath, isRead: method === "GET", defaults }),
      response: {
        200: { description: called.answers, ...output },
        ...WRONG,
        ...(called.needs === "act" && { 409: PROBLEM }),
        ...(url.startsWith("/v1/") && { default: PROBLEM }),
      },
    },
    async preValidation(request) {
      check?.(request.body);
      // Treat a missing body as an empty object.
      if (method !== "GET") request.body ??= {};
    },
    async handler(request) {
      const params = request.params as Fields;
      const input = { ...(request.query as Fields), ...(request.body as Fields), ...params };
      const result = await perform(called, doorOf(door, request), input, needs);
      return at.shape === undefined ? result : at.shape(result);
    },
  });
}

function requestSchema(
  called: AnyOperation,
  parts: { inPath: readonly string[]; isRead: boolean; defaults: Fields | undefined },
): object {
  const { properties, required } = inputSchemaOf(called);
  const { inPath, isRead, defaults = {} } = parts;
  const partOf = (isIn: (name: string) => boolean): object => ({
    type: "object",
    required: required.filter(isIn),
    properties: Object.fromEntries(
      Object.entries(properties)
        .filter(([name]) => isIn(name))
        .map(([name, schema]) => [
          name,
          name in defaults ? { ...schema, default: defaults[name] } : schema,
        ]),
    ),
  });
  const rest = { ...partOf((name) => !inPath.includes(name)), additionalProperties: false };
  const isEmpty = Object.keys(properties).length === inPath.length;
  return {
    ...(inPath.length > 0 && { params: partOf((name) => inPath.includes(name)) }),
    ...(isRead ? { querystring: rest } : isEmpty ? {} : { body: rest }),
  };
}

/**
 * Creates the context of an operation from a request, with the permissions of the request's token.
 */
export function doorOf(door: Omit<Door, "caller">, request: FastifyRequest): Door {
  const { name, mayUse, mayBucket, mayQueue } = accessOf(request);
  return {
    ...door,
    caller: { by: (said) => callerName(name, said), mayUse, mayBucket, mayQueue },
    changed: ({ name: operation, by, target }) =>
      request.log.info({ ...target, operation, by }, "changed by hand"),
    warn: (error) =>
      request.log.warn({ err: error }, "The change was made, but its result could not be read."),
  };
}

/**
 * Returns the author for the change log. The author always includes the token's owner, even if the
 * request states another name.
 */
function callerName(name: string | undefined, said: string | undefined): string {
  if (said === undefined || said === name) return name ?? "the server";
  return name === undefined ? said : `${said} (token of ${name})`;
}

const text = (description: string): object => ({ type: "string", description });

/** The schema of an error in the format of RFC 9457. */
const PROBLEM = {
  description: "The problem and its remedy (RFC 9457).",
  content: {
    "application/problem+json": {
      schema: {
        type: "object",
        required: ["type", "title", "status", "detail", "code"],
        properties: {
          type: text("about:blank"),
          title: text("The name of the status."),
          status: { type: "integer", minimum: 0, description: "The status." },
          detail: text("What is wrong."),
          code: {
            ...text("docs/reference/errors.md explains them."),
            enum: Object.keys(STATUS_OF_CODE),
          },
          option: text("The invalid option."),
          value: { description: "Its value, without secrets." },
          remedy: text("What to do."),
          retryAfterMs: { type: "number", description: "The time until a retry may succeed." },
        },
      },
    },
  },
};

const WRONG = { 400: PROBLEM, 401: PROBLEM, 403: PROBLEM, 404: PROBLEM, 503: PROBLEM };
