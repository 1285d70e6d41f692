/** Serves `/healthz` and `/readyz` for orchestrators and load balancers. */
import type { FastifyInstance } from "fastify";
import { reasonOf } from "../../core/describe.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";

/** Paths that are requested every few seconds. These requests are not logged. */
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
        summary: "Liveness: whether the process runs",
        tags: ["health"],
        security: [],
        response: {
          200: {
            description: "The process runs.",
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
        summary: "Readiness: whether the server can answer requests, and why not",
        tags: ["health"],
        security: [],
        response: {
          200: readiness("The server is ready.", true),
          503: readiness("The server is not ready.", false),
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
