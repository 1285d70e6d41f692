/** `POST …/preview`: what a change would do to what waits. It changes nothing, so whoever may look may ask. */
import type { FastifyInstance } from "fastify";
import type { Sluice } from "../../sluice/create-sluice.ts";
import type { Bucket } from "../../throttle/bucket.ts";
import { bucketNamed, queueNamed } from "./named.ts";
import { answer, object, PROBLEM } from "./schemas.ts";

const NAME = { type: "string", maxLength: 1_024 };
const WRONG = { 400: PROBLEM, 401: PROBLEM, 403: PROBLEM, 404: PROBLEM, 503: PROBLEM };

const BODY = {
  type: "object",
  additionalProperties: false,
  properties: {
    policy: { type: "object", description: 'Options of a bucket, such as { "rate": "20/s" }.' },
    pausedForMs: {
      description: 'For how long the bucket would be paused: ms, "forever", or 0 for not at all.',
      anyOf: [{ type: "integer", minimum: 0 }, { const: "forever" }],
    },
  },
} as const;

interface Asked {
  readonly policy?: object;
  readonly pausedForMs?: number | "forever";
}

type Change = Parameters<Bucket["preview"]>[0];

function changeOf({ policy = {}, pausedForMs }: Asked): Change {
  const ms = pausedForMs === "forever" ? Infinity : pausedForMs;
  return (ms === undefined ? policy : { ...policy, pausedForMs: ms }) as Change;
}

export function previewRoutes(app: FastifyInstance, sluice: Sluice): void {
  app.post<{ Params: { bucket: string }; Body: Asked }>(
    "/api/v1/buckets/:bucket/preview",
    {
      config: { needs: "view", bucket: "bucket" },
      schema: {
        summary: "What another policy or a pause would do to the callers that wait",
        tags: ["steering"],
        params: object({ bucket: NAME }),
        body: BODY,
        response: {
          200: answer(
            "The bucket as it is, and as it would be.",
            object({ now: { type: "object" }, after: { type: "object" } }),
          ),
          ...WRONG,
        },
      },
    },
    async ({ params, body }) => (await bucketNamed(sluice, params.bucket)).preview(changeOf(body)),
  );
  app.post<{ Params: { queue: string }; Body: Asked }>(
    "/api/v1/queues/:queue/preview",
    {
      config: { needs: "view", queue: "queue" },
      schema: {
        summary: "What another policy or a pause of its bucket would do to the jobs that wait",
        tags: ["queues"],
        params: object({ queue: NAME }),
        body: BODY,
        response: {
          200: answer(
            "The forecast as it is, and as it would be.",
            object({ now: { type: "object" }, after: { type: "object" } }),
          ),
          ...WRONG,
        },
      },
    },
    async ({ params, body }) => (await queueNamed(sluice, params.queue)).preview(changeOf(body)),
  );
}
