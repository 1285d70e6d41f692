/** The dashboard signs in with a token, and gets a cookie for it. */
import type { FastifyInstance } from "fastify";
import { accessOf, type Gate } from "./access.ts";

const PATH = "/api/v1/session";
const SESSION = {
  200: {
    description: "What the sender may do.",
    type: "object",
    required: ["role", "signedIn"],
    properties: {
      role: { type: "string", enum: ["view", "act", "call"] },
      name: { type: "string", description: "Whose token it is." },
      signedIn: { type: "boolean", description: "Whether a cookie stands for the token." },
    },
  },
} as const;

export function sessionRoutes(app: FastifyInstance, gate: Gate): void {
  app.get(
    PATH,
    {
      config: { needs: "view" },
      schema: { summary: "What the sender may do", tags: ["session"], response: SESSION },
    },
    (request) => {
      const { role, name } = accessOf(request);
      return { role, name, signedIn: gate.isSignedIn(request) };
    },
  );
  app.post<{ Body: { token: string } }>(
    PATH,
    {
      config: { needs: "nothing" },
      schema: {
        summary: "Signs in: a cookie stands for the token for twelve hours",
        tags: ["session"],
        security: [],
        body: {
          type: "object",
          required: ["token"],
          additionalProperties: false,
          properties: { token: { type: "string", maxLength: 4_096 } },
        },
        response: SESSION,
      },
    },
    ({ body }, reply) => {
      const { role, name } = gate.signIn(reply, body.token);
      return { role, name, signedIn: true };
    },
  );
  app.delete(
    PATH,
    {
      config: { needs: "nothing" },
      schema: {
        summary: "Signs out",
        tags: ["session"],
        security: [],
        response: { 204: { description: "The cookie is gone.", type: "null" } },
      },
    },
    (_request, reply) => {
      gate.signOut(reply);
      return reply.code(204).send();
    },
  );
}
