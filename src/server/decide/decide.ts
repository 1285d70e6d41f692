/** The routes by which any language draws from buckets and gives jobs to queues. */
import type { FastifyInstance } from "fastify";
import { createCallers } from "./caller.ts";
import { drawRoutes } from "./draws.ts";
import type { Found } from "./found.ts";
import { jobRoutes } from "./jobs.ts";
import { slotRoutes } from "./slot-routes.ts";
import { createHeldSlots } from "./slots.ts";

export function decideRoutes(app: FastifyInstance, found: Found): void {
  const slots = createHeldSlots();
  const callers = createCallers();
  drawRoutes(app, { found, slots, callers });
  slotRoutes(app, slots);
  void app.register(async (inner) => jobRoutes(inner, found));
  app.addHook("preClose", async () => callers.close());
}
