import type { FastifyInstance } from "fastify";
import type { SettledCost } from "../../throttle/call-options.ts";
import { assertBucket } from "../access/access.ts";
import { PROBLEM, RELEASE, RENEW, SETTLE, SLOT_PARAMS } from "./schemas.ts";
import type { HeldSlots } from "./slots.ts";

interface OfSlot<Body> {
  readonly Params: { readonly id: string };
  readonly Body: Body;
}

const DONE = { type: "object", properties: { id: { type: "string" } } };

/** What becomes of slots that callers of this server hold. */
export function slotRoutes(app: FastifyInstance, slots: HeldSlots): void {
  const common = (summary: string, body: object) => ({
    config: { needs: "draw" } as const,
    schema: { summary, params: SLOT_PARAMS, body, response: { 200: DONE, default: PROBLEM } },
  });

  app.post<OfSlot<{ readonly cost: SettledCost }>>(
    "/v1/slots/:id/settle",
    common("Books what the call truly took; the first time counts", SETTLE),
    async (request) => {
      const { id } = request.params;
      assertBucket(request, slots.bucketOf(id));
      await slots.settle(id, request.body.cost);
      return { id };
    },
  );
  app.post<OfSlot<{ readonly cost?: SettledCost } | null>>(
    "/v1/slots/:id/release",
    common("The call has ended: ends its lease, and books its cost if one is given", RELEASE),
    async (request) => {
      const { id } = request.params;
      assertBucket(request, slots.bucketOf(id));
      const { cost } = request.body ?? {};
      if (cost !== undefined) await slots.settle(id, cost);
      slots.release(id);
      return { id };
    },
  );
  app.post<OfSlot<{ readonly holdMs: number }>>(
    "/v1/slots/:id/renew",
    common("The call goes on: holds its slot for holdMs from now", RENEW),
    async (request) => {
      const { id } = request.params;
      assertBucket(request, slots.bucketOf(id));
      slots.renew(id, request.body.holdMs);
      return { id };
    },
  );
}
