/** `POST /api/v1/buckets/…`: changes for all processes, that are noted and can be undone. */
import type { FastifyInstance, FastifyRequest } from "fastify";
import type { WhoAndWhy } from "../../core/input/who-and-why.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import type { Bucket } from "../../throttle/bucket.ts";
import { accessOf } from "../access/access.ts";
import { readBeside } from "../problem.ts";
import { bucketNamed } from "./named.ts";
import { answer, CHANGE, object, PROBLEM, STATUS } from "./schemas.ts";
import type { Snapshots } from "./snapshot.ts";

const BY_HAND = {
  by: { type: "string", description: "Who makes the change. Defaults to the name of the token." },
  reason: { type: "string", description: "Why." },
  generation: {
    type: "integer",
    minimum: 1,
    description: "The generation that you saw: refused with 409 if another change came since.",
  },
} as const;
export const FOR_MS: object = {
  type: "integer",
  minimum: 1,
  description: "For how long. Defaults to no end.",
};
const KEY = {
  description: "One key: its name, the names of a path, or an object of keys by name.",
} as const;

/** Of a queue or an endpoint: there, a reason is that of a dead letter. */
export interface SaidBy {
  readonly by?: string | undefined;
  readonly why?: string | undefined;
}

export const BY_WHOM: Readonly<Record<keyof SaidBy, object>> = {
  by: BY_HAND.by,
  why: { type: "string", description: "Why; the log of changes says it." },
};
export const UNDO_ID: object = {
  type: "string",
  description: "The change. Defaults to the last one.",
};

export function byHandOf(request: FastifyRequest, { by, why }: SaidBy): WhoAndWhy {
  return { by: whoAsks(request, by), ...(why === undefined ? {} : { reason: why }) };
}

interface Given {
  readonly by?: string;
  readonly reason?: string;
  readonly generation?: number;
  readonly [option: string]: unknown;
}

interface Steering {
  readonly action: "configure" | "pause" | "resume" | "undo";
  readonly summary: string;
  readonly body: Readonly<Record<string, object>>;
  readonly required?: readonly string[];
  /** Makes the change; what it returns is answered beside the status. */
  readonly make: (bucket: Bucket, given: Given) => Promise<object | void>;
}

const STEERINGS: readonly Steering[] = [
  {
    action: "configure",
    summary: "Puts another policy in force, over that of the code",
    body: {
      policy: {
        description: 'Options of a bucket, such as { "rate": "20/s" }, or "code".',
        anyOf: [{ type: "object" }, { const: "code" }],
      },
      forMs: FOR_MS,
      ...BY_HAND,
    },
    required: ["policy"],
    make: (bucket, { policy, ...options }) =>
      bucket.configure(policy as Parameters<Bucket["configure"]>[0], options),
  },
  {
    action: "pause",
    summary: "Starts no calls, of all keys or of one",
    body: { forMs: FOR_MS, key: KEY, ...BY_HAND },
    make: (bucket, options) => bucket.pause(options),
  },
  {
    action: "resume",
    summary: "Ends a pause, of all keys or of one",
    body: { key: KEY, ...BY_HAND },
    make: (bucket, options) => bucket.resume(options),
  },
  {
    action: "undo",
    summary: "Takes back the last change that is still in force",
    body: {
      id: { type: "string", description: "Refused with 409 if this is not the last change." },
      ...BY_HAND,
    },
    make: async (bucket, options) => {
      const undone = await bucket.undo(options);
      return undone === undefined ? {} : { undone };
    },
  },
];

export function steeringRoutes(app: FastifyInstance, sluice: Sluice, snapshots: Snapshots): void {
  for (const { action, summary, body, required = [], make } of STEERINGS) {
    app.post<{ Params: { bucket: string }; Body?: Given }>(
      `/api/v1/buckets/:bucket/${action}`,
      {
        config: { needs: "act", bucket: "bucket" },
        schema: {
          summary,
          tags: ["steering"],
          params: object({ bucket: { type: "string", maxLength: 1_024 } }),
          body: { type: "object", additionalProperties: false, required, properties: body },
          response: {
            200: answer(
              "The bucket as it is now, unless it could not be read.",
              object({ status: STATUS, undone: CHANGE }, ["status", "undone"]),
            ),
            400: PROBLEM,
            401: PROBLEM,
            403: PROBLEM,
            404: PROBLEM,
            409: PROBLEM,
            503: PROBLEM,
          },
        },
        // Nothing to say is the same as an empty object.
        preValidation: async (request) => void (request.body ??= {}),
      },
      async (request) => {
        const bucket = await bucketNamed(sluice, request.params.bucket);
        const given = request.body ?? {};
        const extra = await make(bucket, { ...given, by: whoAsks(request, given.by) });
        snapshots.forget();
        request.log.info({ bucket: bucket.name, action }, "changed by hand");
        return { ...extra, status: await readBeside(request, bucket.status()) };
      },
    );
  }
}

/** The log of changes shows whose token it was, whatever a request says. */
function whoAsks(request: FastifyRequest, said: string | undefined): string {
  const { name } = accessOf(request);
  if (said === undefined || said === name) return name ?? "the server";
  return name === undefined ? said : `${said} (token of ${name})`;
}
