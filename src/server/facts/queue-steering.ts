/** `POST /api/v1/queues/…`: pauses, settings and replays, that are noted; what can be taken back, is by `undo`. */
import type { FastifyInstance } from "fastify";
import type { WhoAndWhy } from "../../core/input/who-and-why.ts";
import type { Queue } from "../../queue/queue.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import { jobMissing, readBeside } from "../problem.ts";
import { queueNamed } from "./named.ts";
import { QUEUE_PAUSE, SETTINGS_SEEN } from "./queue-schemas.ts";
import { NAMED, WRONG, type OfQueue } from "./queues.ts";
import { answer, list, object, PROBLEM, QUEUE_CHANGE } from "./schemas.ts";
import { byHandOf, BY_WHOM, FOR_MS, UNDO_ID, type SaidBy } from "./steering.ts";

const STEER = { needs: "act", queue: "queue" } as const;
const COUNT = { type: "integer", minimum: 0 };
const KEY = { description: "The key of the jobs: its name, or the names of a path." };
const GENERATION = {
  ...COUNT,
  description:
    "The generation that you saw in the status: refused with 409 if another change came since.",
};
const orCode = (description: string): object => ({
  description: `${description} "code" ends what was set by hand.`,
});
const SETTINGS = {
  maxBacklog: orCode("How many jobs may wait: 10000, or { all, perKey }."),
  keepDone: orCode("Which done jobs are kept: { count, forMs }."),
  keepFailed: orCode("Which dead letters are kept: { count, forMs }."),
  defaults: orCode("The options of jobs that are enqueued without: { attempts, priority, … }."),
  weights: orCode("How much of a shared rate keys get: { acme: 3 }, or a list of these by level."),
};

interface Steering {
  readonly action: "pause" | "resume" | "set" | "replay" | "undo";
  readonly summary: string;
  readonly body: Readonly<Record<string, object>>;
  readonly make: (
    queue: Queue<unknown>,
    given: Record<string, unknown>,
    byHand: WhoAndWhy,
  ) => Promise<object | void>;
}

const STEERINGS: readonly Steering[] = [
  {
    action: "pause",
    summary: "Starts no jobs, of all keys or of one",
    body: {
      key: KEY,
      forMs: FOR_MS,
      generation: GENERATION,
    },
    make: (queue, given, byHand) => queue.pause({ ...given, ...byHand }),
  },
  {
    action: "resume",
    summary: "Ends a pause, of all keys or of one",
    body: { key: KEY, generation: GENERATION },
    make: (queue, given, byHand) => queue.resume({ ...given, ...byHand }),
  },
  {
    action: "set",
    summary: "Puts settings in force, over those of rules and code",
    body: {
      ...SETTINGS,
      forMs: FOR_MS,
      generation: GENERATION,
    },
    make: (queue, given, byHand) => queue.set({ ...given, ...byHand }),
  },
  {
    action: "replay",
    summary: "Puts dead letters back: the one of an id, or all that match",
    body: {
      id: { type: "string", description: "One dead letter; the others then do not count." },
      key: KEY,
      name: { type: "string" },
      reason: { type: "string", description: "A part of the reason." },
      code: { type: "string" },
      since: {
        type: "integer",
        minimum: 0,
        description: "Failed then or later, in ms since 1970.",
      },
      limit: { type: "integer", minimum: 1, description: "How many at most. Defaults to all." },
    },
    make: async (queue, { id, ...filter }, byHand) => {
      if (typeof id !== "string") return { replayed: await queue.replay(filter, byHand) };
      const replayed = await queue.replay(id, byHand);
      if (replayed === 0 && (await queue.job(id)) === undefined) throw jobMissing(queue.name, id);
      return { replayed };
    },
  },
  {
    action: "undo",
    summary: "Takes back a pause, a resume or a setting",
    body: { id: UNDO_ID, generation: GENERATION },
    make: async (queue, given, byHand) => ({ undone: await queue.undo({ ...given, ...byHand }) }),
  },
];

export function queueSteeringRoutes(app: FastifyInstance, sluice: Sluice): void {
  for (const { action, summary, body, make } of STEERINGS) {
    app.post<OfQueue & { Body?: Record<string, unknown> & SaidBy }>(
      `/api/v1/queues/:queue/${action}`,
      {
        config: STEER,
        schema: {
          summary,
          tags: ["queues"],
          params: NAMED,
          body: {
            type: "object",
            additionalProperties: false,
            properties: { ...body, ...BY_WHOM },
          },
          response: {
            200: answer(
              "How many jobs were put back, what was taken back, and how the queue is steered now, as far as it could be read.",
              object(
                {
                  replayed: COUNT,
                  undone: QUEUE_CHANGE,
                  pauses: list(QUEUE_PAUSE),
                  settings: SETTINGS_SEEN,
                  generation: COUNT,
                },
                ["replayed", "undone", "pauses", "settings", "generation"],
              ),
            ),
            404: PROBLEM,
            409: PROBLEM,
            ...WRONG,
          },
        },
        preValidation: async (request) => void (request.body ??= {}),
      },
      async (request) => {
        const queue = await queueNamed(sluice, request.params.queue);
        const { by, why, ...given } = request.body ?? {};
        const byHand = byHandOf(request, { by, why });
        const done = await make(queue, given, byHand);
        request.log.info({ queue: queue.name, action, by: byHand.by }, "steered by hand");
        const [pauses, status] = await Promise.all([
          readBeside(request, queue.paused()),
          readBeside(request, queue.status()),
        ]);
        return { ...done, pauses, settings: status?.settings, generation: status?.generation };
      },
    );
  }
}
