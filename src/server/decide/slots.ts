import { randomBytes } from "node:crypto";
import type { GivenSlot, SlotNoted, SlotSecrets } from "../../core/stores/insight/slots.ts";
import type { OwnedBucket } from "../../throttle/bucket.ts";
import type { SettledCost } from "../../throttle/call-options.ts";
import type { Cost } from "../../throttle/costs.ts";
import type { CallOutcome, DrawnSlot, Slot } from "../../throttle/slot/slot.ts";
import { HttpProblem } from "../problem.ts";
import type { FoundBuckets } from "./found-buckets.ts";
import { createSlotIds, type SlotId } from "./slot-ids.ts";

/** How long a client holds a slot, and the cost with which the slot was drawn. */
interface Holding {
  readonly cost: Cost | undefined;
  readonly holdMs: number;
}

/**
 * The slots that clients hold. Any server of the fleet can settle and release these slots. Their
 * leases are renewed by the server that drew them, and by servers that received a request to renew
 * them.
 */
export interface GivenSlots {
  /** If it returns a promise, await that promise before you call {@link GivenSlots.give}. */
  ready(): Promise<void> | undefined;
  /**
   * Returns the id of a slot that this server has drawn, and a function that stops renewing the
   * slot's lease.
   */
  give(slot: Slot, holding: Holding): { readonly id: string; readonly letGo: () => void };
  /** @throws {@link HttpProblem} 404 when no server of the fleet created this id. */
  read(id: string): Promise<SlotId>;
  /**
   * Holds the slot for `holdMs` from now. Throws {@link HttpProblem} 404 if the slot was released
   * or has expired, as do the methods below.
   */
  renew(slot: SlotId, holdMs: number): Promise<void>;
  /** Books the cost. Only the first call counts. Resolves with true if this is the first call. */
  settle(slot: SlotId, cost: SettledCost): Promise<boolean>;
  release(slot: SlotId, outcome?: CallOutcome): Promise<void>;
}

const NAME_BYTES = 9;
/**
 * How long to wait before asking again, if Redis did not say whether another server has renewed the
 * slot.
 */
const ASK_AGAIN_MS = 1_000;

interface Held {
  readonly slot: DrawnSlot;
  timer: NodeJS.Timeout;
}

export interface GivenParts {
  readonly found: FoundBuckets;
  readonly secrets: SlotSecrets;
}

export function createGivenSlots({ found, secrets }: GivenParts): GivenSlots {
  const ids = createSlotIds(secrets);
  /** The slots whose leases this server renews, by name. */
  const held = new Map<string, Held>();

  function hold(id: SlotId, slot: DrawnSlot, holdMs: number): void {
    const before = held.get(id.name);
    clearTimeout(before?.timer);
    // The signal is aborted if another server has ended the lease, or the lease could not be
    // renewed.
    if (before === undefined) {
      slot.signal.addEventListener("abort", () => letGo(id.name), { once: true });
    }
    const timer = setTimeout(() => void endIfOver(id), holdMs).unref();
    held.set(id.name, { slot, timer });
  }

  function letGo(name: string, outcome: CallOutcome = "ignored"): void {
    const own = held.get(name);
    if (own === undefined) return;
    clearTimeout(own.timer);
    held.delete(name);
    own.slot.release({ outcome });
  }

  /** Ends a slot that has expired, unless another server has renewed the slot. */
  async function endIfOver(id: SlotId): Promise<void> {
    const own = held.get(id.name);
    if (own === undefined) return;
    const look = own.slot.keeper.noteSlot({ ...asGiven(id), what: "look" });
    const noted = await look.catch(() => undefined);
    if (held.get(id.name) !== own) return;
    if (noted?.state === "over") letGo(id.name);
    else hold(id, own.slot, noted?.leftMs ?? ASK_AGAIN_MS);
  }

  /** @throws {@link HttpProblem} 404 for a slot that was released or has expired. */
  function assertHeld(id: SlotId, { state }: SlotNoted): void {
    if (state !== "over") return;
    letGo(id.name);
    throw new HttpProblem("ERR_SLOT_MISSING", "This slot was released, or its holdMs is over.");
  }

  async function slotOf({ bucket, name, facts }: SlotId): Promise<DrawnSlot> {
    const own = held.get(name);
    return own?.slot ?? ((await found.bucket(bucket)) as OwnedBucket).slotOf(facts);
  }

  return {
    ready: () => ids.ready(),
    give(given, { cost, holdMs }) {
      const slot = given as DrawnSlot;
      const { bucket, hasLease, atMs } = slot;
      const name = randomBytes(NAME_BYTES).toString("base64url");
      const untilMs = Math.ceil(atMs) + holdMs;
      const id = { bucket, name, untilMs, facts: slot.factsFor(cost) };
      if (hasLease) hold(id, slot, holdMs);
      return { id: ids.write(id), letGo: () => letGo(name) };
    },
    async read(text) {
      const id = await ids.read(text);
      if (id !== undefined) return id;
      throw new HttpProblem("ERR_SLOT_MISSING", "No server of this Redis gave a slot of this id.");
    },
    async renew(id, holdMs) {
      const slot = await slotOf(id);
      assertHeld(id, await slot.keeper.noteSlot({ ...asGiven(id), what: "renew", holdMs }));
      if (id.facts.lease === 0) return;
      if (held.has(id.name) || (await slot.takeOver())) return hold(id, slot, holdMs);
      throw new HttpProblem(
        "ERR_LEASE_LOST",
        "The lease of this slot was lost: another call may run by now.",
      );
    },
    async settle(id, cost) {
      const slot = await slotOf(id);
      const noted = await slot.settleGiven(cost, asGiven(id));
      assertHeld(id, noted);
      return noted.state === "held";
    },
    async release(id, outcome = "done") {
      const slot = await slotOf(id);
      assertHeld(id, await slot.keeper.noteSlot({ ...asGiven(id), what: "release" }));
      if (id.facts.lease === 0) return;
      if (held.has(id.name)) letGo(id.name, outcome);
      else slot.release({ outcome });
    },
  };
}

function asGiven({ name, untilMs }: SlotId): GivenSlot {
  return { slot: name, untilMs };
}
