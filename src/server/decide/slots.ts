import { randomBytes } from "node:crypto";
import type { SettledCost } from "../../throttle/call-options.ts";
import type { Slot } from "../../throttle/slot/slot.ts";
import { HttpProblem } from "../problem.ts";

/** The slots that callers of this server hold: to settle what their calls cost, and to end their leases. */
export interface HeldSlots {
  /** Holds a slot for this long at most; then its lease ends. Returns its id, which nobody can guess. */
  hold(slot: Slot, holdMs: number): string;
  /** The bucket of a slot. The others throw as it does: {@link HttpProblem} 404 when no such slot is held here. */
  bucketOf(id: string): string;
  /** Holds it for this long from now. */
  renew(id: string, holdMs: number): void;
  settle(id: string, cost: SettledCost): Promise<void>;
  release(id: string): void;
}

/** Slots without a lease only wait for a cost: of more than this, the oldest are forgotten. */
const MOST_WITHOUT_LEASE = 100_000;
const ID_BYTES = 18;

interface Held {
  readonly slot: Slot;
  timer: NodeJS.Timeout;
}

export function createHeldSlots(): HeldSlots {
  const leased = new Map<string, Held>();
  const others = new Map<string, Held>();

  function end(id: string): void {
    const held = leased.get(id) ?? others.get(id);
    if (held === undefined) return;
    clearTimeout(held.timer);
    leased.delete(id);
    others.delete(id);
    held.slot.release();
  }

  function timerOf(id: string, holdMs: number): NodeJS.Timeout {
    return setTimeout(() => end(id), holdMs).unref();
  }

  function heldOf(id: string): Held {
    const held = leased.get(id) ?? others.get(id);
    if (held !== undefined) return held;
    throw new HttpProblem(
      404,
      "This process of the server holds no slot of this id: it was released, its holdMs is over, or another process gave it.",
    );
  }

  return {
    hold(slot, holdMs) {
      const id = randomBytes(ID_BYTES).toString("base64url");
      const held = { slot, timer: timerOf(id, holdMs) };
      (slot.hasLease ? leased : others).set(id, held);
      if (others.size > MOST_WITHOUT_LEASE) end(others.keys().next().value!);
      return id;
    },
    bucketOf: (id) => heldOf(id).slot.bucket,
    renew(id, holdMs) {
      const held = heldOf(id);
      if (held.slot.hasLease && held.slot.signal.aborted) {
        end(id);
        throw new HttpProblem(410, "The lease of this slot was lost: another call may run by now.");
      }
      clearTimeout(held.timer);
      held.timer = timerOf(id, holdMs);
    },
    async settle(id, cost) {
      await heldOf(id).slot.settle(cost);
    },
    release(id) {
      heldOf(id);
      end(id);
    },
  };
}
