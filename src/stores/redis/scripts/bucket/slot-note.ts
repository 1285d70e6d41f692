import type { SlotNote, SlotNoted } from "../../../../core/stores/insight/slots.ts";
import { slotNoteKey } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";

interface Given extends SlotNote {
  readonly prefix: string;
  /** Identifies the request, which is sent again if its reply is lost. */
  readonly request: string;
}

export const slotNote: Script<Given, SlotNoted> = defineScript({
  name: "bucket/slot-note",
  keys: ({ prefix, bucket, slot }) => [slotNoteKey(prefix, bucket, slot)],
  args: ({ what, untilMs, holdMs = 0, request }) => [what, untilMs, holdMs, request],
  decode: readSlotNoted,
});

export function readSlotNoted(reply: unknown): SlotNoted {
  const [state, leftMs] = reply as [SlotNoted["state"], number];
  return { state, leftMs };
}
