/** The routes by which any language draws from buckets and gives jobs to queues. */
import type { FastifyInstance } from "fastify";
import { createCallers } from "./caller.ts";
import { drawRoutes } from "./draws.ts";
import { jobRoutes } from "./jobs.ts";
import { slotRoutes } from "./slot-routes.ts";
import { createGivenSlots, type GivenParts } from "./slots.ts";

export function decideRoutes(app: FastifyInstance, { found, secrets }: GivenParts): void {
  const slots = createGivenSlots({ found, secrets });
  const callers = createCallers();
  drawRoutes(app, { found, slots, callers });
  slotRoutes(app, slots);
  void app.register(async (inner) => jobRoutes(inner, found));
  app.addHook("preClose", async () => callers.close());
}
