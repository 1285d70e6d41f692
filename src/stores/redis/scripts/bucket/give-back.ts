import type { ReturnRequest, SettleRequest } from "../../../../core/store.ts";
import { frameKeys, frameNumbers, packNumbers, shadowsNumbers, type Frame } from "./frame.ts";
import type { GivenSlot, SlotNoted } from "../../../../core/stores/insight/slots.ts";
import { slotNoteKey } from "../keys.ts";
import { SLOT_NOTED } from "./slot-note.ts";
import { defineScript, type Script } from "../script.ts";

export type SlotsReturn = ReturnRequest & Frame;

export const slotsReturn: Script<SlotsReturn, void> = defineScript({
  name: "bucket/slots-return",
  keys: (input) => frameKeys({ ...input, scopes: input.slotRequest.scopes }),
  args: (input) => {
    const { asker, terms, position, slotRequest, generation, slotsUs, pinnedUs = 0 } = input;
    const { name, scopes, costs } = slotRequest;
    const head = [pinnedUs, generation, position.sinceUs, position.leaseOrder];
    const frame = frameNumbers({ terms, scopes });
    const positions = scopes.flatMap((scope) => [
      scope.position.sinceUs,
      scope.position.leaseOrder,
    ]);
    const slots = [slotsUs.length, ...slotsUs];
    return [
      asker,
      terms.text,
      name,
      packNumbers([...head, ...frame, ...positions, ...costs, ...slots]),
    ];
  },
  decode: () => undefined,
});

export const costsSettle: Script<SettleRequest & Frame, void> = defineScript({
  name: "bucket/costs-settle",
  keys: (input) => frameKeys(input, input.shadowDeltas && input.terms.shadows),
  args: (input) => {
    const { terms, slotUs, isUnused = false, deltas, shadowDeltas, pinnedUs = 0 } = input;
    const head = [pinnedUs, slotUs, isUnused ? 1 : 0];
    const ofShadows = shadowDeltas ? [...shadowsNumbers(terms), ...shadowDeltas] : [];
    return [terms.text, packNumbers([...head, ...frameNumbers(input), ...deltas, ...ofShadows])];
  },
  decode: () => undefined,
});

/**
 * Settles a slot that a server has granted, unless the slot is already settled. Marks the slot as
 * settled, and books the cost.
 */
export const givenSettle: Script<
  SettleRequest & Frame & GivenSlot & { readonly request: string },
  SlotNoted
> = defineScript({
  name: costsSettle.name,
  keys: (input) => [
    ...costsSettle.keys(input),
    slotNoteKey(input.prefix, input.bucket, input.slot),
  ],
  args: (input) => [...costsSettle.args(input), input.untilMs, input.request],
  decode: (reply) => SLOT_NOTED.read(reply),
});
