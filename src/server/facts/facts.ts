import type { FastifyInstance } from "fastify";
import type { Sluice } from "../../sluice.ts";
import { endpointRoutes } from "./endpoints.ts";
import { keyRoutes } from "./keys.ts";
import { lookRoutes } from "./looks.ts";
import { previewRoutes } from "./previews.ts";
import { queueSteeringRoutes } from "./queue-steering.ts";
import { queueRoutes } from "./queues.ts";
import { createSnapshots } from "./snapshot.ts";
import { steeringRoutes } from "./steering.ts";

/** `/api/v1`: facts and steering. */
export function factRoutes(app: FastifyInstance, { sluice }: { readonly sluice: Sluice }): void {
  const snapshots = createSnapshots(sluice);
  lookRoutes(app, sluice, snapshots);
  steeringRoutes(app, sluice, snapshots);
  queueRoutes(app, sluice);
  queueSteeringRoutes(app, sluice);
  keyRoutes(app, sluice, snapshots);
  endpointRoutes(app, sluice);
  previewRoutes(app, sluice);
}
