/** Signs dashboard users in: exchanges a token for a cookie. */
import type { FastifyInstance } from "fastify";
import { accessOf, type Gate } from "./access.ts";

const PATH = "/api/v1/session";
/**
 * The page sends the path at which the browser sees it, because a server behind a proxy does not
 * know that path.
 */
const OF_PATH = {
  type: "object",
  additionalProperties: false,
  properties: {
    path: {
      type: "string",
      maxLength: 1_024,
      pattern: "^/[\\w!$&'()*+,./:=@~%-]*$",
      description:
        "The path of the cookie. Defaults to the path of publicUrl, or to / without it. The board gives its own path.",
    },
  },
} as const;
const SESSION = {
  200: {
    description: "The permissions of the sender.",
    type: "object",
    required: ["role", "signedIn"],
    properties: {
      role: { type: "string", enum: ["view", "act", "call", "work"] },
      name: { type: "string", description: "The owner of the token." },
      signedIn: {
        type: "boolean",
        description: "Whether the sender uses a cookie in place of the token.",
      },
    },
  },
} as const;

export function sessionRoutes(app: FastifyInstance, gate: Gate): void {
  app.get(
    PATH,
    {
      config: { needs: "view" },
      schema: {
        summary: "Shows the permissions of the sender",
        tags: ["session"],
        response: SESSION,
      },
    },
    (request) => {
      const { role, name } = accessOf(request);
      return { role, name, signedIn: gate.isSignedIn(request) };
    },
  );
  app.post<{ Body: { token: string }; Querystring: { path?: string } }>(
    PATH,
    {
      config: { needs: "nothing" },
      schema: {
        summary: "Signs in: sets a cookie that replaces the token for twelve hours",
        tags: ["session"],
        security: [],
        querystring: OF_PATH,
        body: {
          type: "object",
          required: ["token"],
          additionalProperties: false,
          properties: { token: { type: "string", maxLength: 4_096 } },
        },
        response: SESSION,
      },
    },
    ({ body: { token }, query: { path } }, reply) => {
      const { role, name } = gate.signIn(reply, { token, path });
      return { role, name, signedIn: true };
    },
  );
  app.delete<{ Querystring: { path?: string } }>(
    PATH,
    {
      config: { needs: "nothing" },
      schema: {
        summary: "Signs out",
        tags: ["session"],
        security: [],
        querystring: OF_PATH,
        response: { 204: { description: "The cookie was removed.", type: "null" } },
      },
    },
    ({ query: { path } }, reply) => {
      gate.signOut(reply, { path });
      return reply.code(204).send();
    },
  );
}
