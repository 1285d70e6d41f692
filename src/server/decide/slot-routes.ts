import type { FastifyInstance, FastifyRequest } from "fastify";
import type { SettledCost } from "../../throttle/call-options.ts";
import type { CallOutcome } from "../../throttle/slot/slot.ts";
import { StoreUnavailableError } from "../../core/errors.ts";
import { assertBucket } from "../access/access.ts";
import { PROBLEM, RELEASE, RENEW, SETTLE, SLOT_PARAMS } from "./schemas.ts";
import type { SlotId } from "./slot-ids.ts";
import type { GivenSlots } from "./slots.ts";

interface OfSlot<Body> {
  readonly Params: { readonly id: string };
  readonly Body: Body;
}

interface ReleaseBody {
  readonly cost?: SettledCost;
  readonly outcome?: CallOutcome;
}

const ID = { id: { type: "string" } };
const DONE = { type: "object", properties: ID };
const BOOKED = {
  type: "boolean",
  description:
    "Whether the cost was booked. False if the slot was settled before; the first cost applies.",
};
const SETTLED = { type: "object", properties: { ...ID, booked: BOOKED } };

const AGAIN =
  "Send the request again. It takes effect only once; for a released slot, the repeated request gets a 404. " +
  "A lease ends by itself unless it is renewed.";

/** Adds a remedy to the error if Redis does not respond. */
async function adviseRetry<Done>(work: Promise<Done>): Promise<Done> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof StoreUnavailableError)) throw error;
    throw new StoreUnavailableError(`${error.message} ${AGAIN}`, error);
  }
}

/** Adds the routes for slots that clients hold. Any server of the fleet may have created a slot. */
export function slotRoutes(app: FastifyInstance, slots: GivenSlots): void {
  const common = (summary: string, body: object, answer: object) => ({
    config: { needs: "draw" } as const,
    schema: { summary, params: SLOT_PARAMS, body, response: { 200: answer, default: PROBLEM } },
  });

  async function slotOf(request: FastifyRequest<OfSlot<unknown>>): Promise<SlotId> {
    const slot = await slots.read(request.params.id);
    assertBucket(request, slot.bucket);
    return slot;
  }

  app.post<OfSlot<{ readonly cost: SettledCost }>>(
    "/v1/slots/:id/settle",
    common("Books the actual cost of the call; only the first request counts", SETTLE, SETTLED),
    async (request) => {
      const slot = await slotOf(request);
      const booked = await adviseRetry(slots.settle(slot, request.body.cost));
      return { id: request.params.id, booked };
    },
  );
  app.post<OfSlot<ReleaseBody | null>>(
    "/v1/slots/:id/release",
    common(
      "Ends the lease of a finished call, with its cost and how the call ended, if they are given",
      RELEASE,
      SETTLED,
    ),
    async (request) => {
      const { id } = request.params;
      const slot = await slotOf(request);
      const { cost, outcome } = request.body ?? {};
      const booked = cost === undefined ? undefined : await adviseRetry(slots.settle(slot, cost));
      await adviseRetry(slots.release(slot, outcome));
      return { id, ...(booked === undefined ? {} : { booked }) };
    },
  );
  app.post<OfSlot<{ readonly holdMs: number }>>(
    "/v1/slots/:id/renew",
    common("Renews the slot of a running call for holdMs from now", RENEW, DONE),
    async (request) => {
      const slot = await slotOf(request);
      await adviseRetry(slots.renew(slot, request.body.holdMs));
      return { id: request.params.id };
    },
  );
}
