/** The routes by which any language draws from buckets and gives jobs to queues. */
import type { FastifyInstance } from "fastify";
import type { RequestNotes } from "../../core/stores/insight/requests.ts";
import { createCallers } from "./caller.ts";
import { drawRoutes } from "./draws.ts";
import { jobRoutes } from "./jobs.ts";
import { slotRoutes } from "./slot-routes.ts";
import { createGivenSlots, type GivenParts } from "./slots.ts";

interface DecideParts extends GivenParts {
  readonly notes: RequestNotes;
}

export function decideRoutes(app: FastifyInstance, { found, secrets, notes }: DecideParts): void {
  const slots = createGivenSlots({ found, secrets });
  const callers = createCallers();
  drawRoutes(app, { found, slots, callers });
  slotRoutes(app, slots);
  void app.register(async (inner) => jobRoutes(inner, { found, notes }));
  app.addHook("preClose", async () => callers.close());
}
