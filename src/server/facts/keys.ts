/** `GET /api/v1/buckets/{bucket}/keys`: who is behind what waits for a bucket. */
import type { FastifyInstance } from "fastify";
import type { Queue } from "../../queue/queue.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import { accessOf } from "../access/access.ts";
import { LANES } from "./queue-schemas.ts";
import { answer, object, PROBLEM } from "./schemas.ts";
import type { Snapshots } from "./snapshot.ts";

const COUNT = { type: "integer", minimum: 0 };
const WRONG = { 400: PROBLEM, 401: PROBLEM, 403: PROBLEM, 503: PROBLEM };

export function keyRoutes(app: FastifyInstance, sluice: Sluice, snapshots: Snapshots): void {
  app.get<{ Params: { bucket: string } }>(
    "/api/v1/buckets/:bucket/keys",
    {
      config: { needs: "view", bucket: "bucket" },
      schema: {
        summary: "The keys of which most jobs wait, of all queues that leave through a bucket",
        tags: ["queues"],
        params: object({ bucket: { type: "string", maxLength: 1_024 } }),
        response: {
          200: answer(
            "Up to 20 keys, those with the most jobs first, and how many there are.",
            object({ lanes: LANES, lanesInAll: COUNT }),
          ),
          ...WRONG,
        },
      },
    },
    async (request) => {
      const { mayQueue } = accessOf(request);
      const { queues } = await snapshots.read();
      const own = queues.filter(({ bucket }) => bucket === request.params.bucket);
      return keysOf(sluice, own.map(({ name }) => name).filter(mayQueue));
    },
  );
}

/** How many queues of a bucket are looked at for its keys, and how many keys are told. */
const [MOST_QUEUES, MOST_KEYS] = [10, 20];

/** The keys of which most jobs wait, of all queues that leave through a bucket. */
async function keysOf(
  sluice: Sluice,
  queues: readonly string[],
): Promise<Pick<Awaited<ReturnType<Queue<unknown>["status"]>>, "lanes" | "lanesInAll">> {
  const found = await Promise.all(
    queues.slice(0, MOST_QUEUES).map(async (name) => (await sluice.findQueue(name))?.status()),
  );
  const known = found.filter((status) => status !== undefined);
  const lanes = known.flatMap((status) => status.lanes);
  return {
    lanes: lanes.toSorted((one, other) => other.jobs - one.jobs).slice(0, MOST_KEYS),
    lanesInAll: known.reduce((sum, { lanesInAll }) => sum + lanesInAll, 0),
  };
}
