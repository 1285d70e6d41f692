/** `/healthz` and `/readyz`: what whoever starts and stops servers asks. */
import type { FastifyInstance } from "fastify";
import { reasonOf } from "../../core/describe.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";

/** Paths that are asked every few seconds: no log tells of them. */
export const QUIET_PATHS: ReadonlySet<string> = new Set(["/healthz", "/readyz", "/metrics"]);

const OPEN = { needs: "nothing" } as const;
const REASONS = {
  type: "array",
  items: {
    type: "object",
    required: ["what", "reason"],
    properties: { what: { type: "string" }, reason: { type: "string" } },
  },
} as const;

export interface HealthParts {
  readonly sluice: Sluice;
  readonly isClosing: () => boolean;
}

export function healthRoutes(app: FastifyInstance, { sluice, isClosing }: HealthParts): void {
  app.get(
    "/healthz",
    {
      config: OPEN,
      schema: {
        summary: "Whether the process lives",
        tags: ["health"],
        security: [],
        response: {
          200: {
            description: "It lives.",
            type: "object",
            required: ["ok"],
            properties: { ok: { const: true } },
          },
        },
      },
    },
    () => ({ ok: true }),
  );
  app.get(
    "/readyz",
    {
      config: OPEN,
      schema: {
        summary: "Whether requests can be served, and why not",
        tags: ["health"],
        security: [],
        response: {
          200: readiness("They can.", true),
          503: readiness("They cannot.", false),
        },
      },
    },
    async (_request, reply) => {
      const reasons = isClosing() ? [CLOSING] : await whyNotReady(sluice);
      return reply
        .code(reasons.length === 0 ? 200 : 503)
        .send({ ready: reasons.length === 0, reasons });
    },
  );
}

function readiness(description: string, ready: boolean): object {
  return {
    description,
    type: "object",
    required: ["ready", "reasons"],
    properties: { ready: { const: ready }, reasons: REASONS },
  };
}

interface Reason {
  readonly what: "redis" | "server";
  readonly reason: string;
}

const CLOSING: Reason = { what: "server", reason: "It is closing." };

export async function whyNotReady(sluice: Sluice): Promise<readonly Reason[]> {
  try {
    const { unreachable } = await sluice.overview({ limit: 1, brief: true });
    return unreachable.map(({ reason }) => ({ what: "redis", reason }));
  } catch (error) {
    return [{ what: "redis", reason: reasonOf(error) }];
  }
}
