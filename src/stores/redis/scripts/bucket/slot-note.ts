import type { SlotNote, SlotNoted } from "../../../../core/stores/insight/slots.ts";
import { slotNoteKey } from "../keys.ts";
import { shapeScript } from "../script.ts";
import { int, optional, readerOf, text, word } from "../shape.ts";

export const SLOT_NOTED = readerOf({ state: word<SlotNoted["state"]>(), leftMs: int });

export const slotNote = shapeScript({
  name: "bucket/slot-note",
  keys: ({ prefix, bucket, slot }: Pick<SlotNote, "bucket" | "slot"> & { prefix: string }) => [
    slotNoteKey(prefix, bucket, slot),
  ],
  args: {
    what: word<SlotNote["what"]>(),
    untilMs: int,
    holdMs: optional(int, 0),
    /** Identifies the request, because it is sent again if its reply is lost. */
    request: text,
  },
  reply: SLOT_NOTED,
});
