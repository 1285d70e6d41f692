/** What servers have noted in Redis of the slots that they gave: see `core/stores/insight/slots.ts`. */
import { randomBytes } from "node:crypto";
import type { Cluster, Redis } from "ioredis";
import { SLOT_SECRET_KEPT_MS, type SlotNotes } from "../../core/stores/insight/slots.ts";
import type { Requests } from "../requests/requests.ts";
import { slotNote } from "../scripts/bucket/slot-note.ts";
import { fleetBase, FLEET } from "../scripts/insight/insight.ts";
import { runScript } from "../scripts/script.ts";

const REQUEST_BYTES = 9;

export function createSlotNotes(
  redis: Redis | Cluster,
  prefix: string,
  requests: Pick<Requests, "send">,
): SlotNotes {
  const secret = `${fleetBase({ prefix })}:slot-secret`;
  return {
    slotSecret: (own) =>
      requests.send(FLEET, async () => {
        await redis.set(secret, own, "PX", SLOT_SECRET_KEPT_MS, "NX");
        return (await redis.get(secret)) ?? own;
      }),
    noteSlot(note) {
      const request = randomBytes(REQUEST_BYTES).toString("base64url");
      return requests.send(note.bucket, () =>
        runScript(redis, slotNote, { ...note, request, prefix }),
      );
    },
  };
}
