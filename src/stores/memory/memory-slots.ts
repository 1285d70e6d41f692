import type { SlotNote, SlotNoted } from "../../core/stores/insight/slots.ts";

interface KeptNote {
  untilMs: number;
  /** Before this, its id is good for something. */
  readonly forgetAtMs: number;
  isSettled: boolean;
  isReleased: boolean;
}

/** What became of slots, in the memory of one process. Twin of `lua/lib/state/slot-note.lua`. */
export function createMemorySlots(): { note(note: SlotNote, nowMs: number): SlotNoted } {
  const notes = new Map<string, KeptNote>();

  /** The oldest stand first, and what is renewed is put last. */
  function forgetOld(now: number): void {
    for (const [name, { forgetAtMs }] of notes) {
      if (forgetAtMs > now) return;
      notes.delete(name);
    }
  }

  return {
    note({ bucket, slot, untilMs, what, holdMs = 0 }, now) {
      forgetOld(now);
      const name = `${bucket} ${slot}`;
      const before = notes.get(name);
      const note = before ?? { untilMs, isSettled: false, isReleased: false };
      if (note.isReleased || note.untilMs <= now) return { state: "over", leftMs: 0 };
      const state = note.isSettled ? "settled" : "held";
      const heldUntilMs = what === "renew" ? now + holdMs : note.untilMs;
      if (what !== "look") {
        notes.delete(name);
        notes.set(name, {
          untilMs: heldUntilMs,
          forgetAtMs: Math.max(heldUntilMs, untilMs),
          isSettled: note.isSettled || what === "settle",
          isReleased: what === "release",
        });
      }
      return { state, leftMs: heldUntilMs - now };
    },
  };
}
