import type { ReturnRequest, Settled, SettleRequest } from "../../../../core/store.ts";
import { frameKeys, frameNumbers, shadowsNumbers, type Frame } from "./frame.ts";
import type { GivenSlot, SlotNoted } from "../../../../core/stores/insight/slots.ts";
import { slotNoteKey } from "../keys.ts";
import { SLOT_NOTED } from "./slot-note.ts";
import { defineScript, type Script } from "../script.ts";
import { Numbers, readCrossed } from "./slots-draw.ts";

export type SlotsReturn = ReturnRequest & Frame;

export const slotsReturn: Script<SlotsReturn, void> = defineScript({
  name: "bucket/slots-return",
  keys: (input) => frameKeys({ ...input, scopes: input.slotRequest.scopes }),
  args: (input) => {
    const { asker, terms, position, slotRequest, generation, slotsUs, pinnedUs = 0 } = input;
    const { name, scopes, costs } = slotRequest;
    const reserves = slotRequest.reserves === true ? 1 : 0;
    const head = [pinnedUs, generation, reserves, position.sinceUs, position.leaseOrder];
    const frame = frameNumbers({ terms, scopes });
    const positions = scopes.flatMap((scope) => [
      scope.position.sinceUs,
      scope.position.leaseOrder,
    ]);
    const slots = [slotsUs.length, ...slotsUs];
    return [asker, terms.text, name, [...head, ...frame, ...positions, ...costs, ...slots]];
  },
  decode: () => undefined,
});

export const costsSettle: Script<SettleRequest & Frame, Settled> = defineScript({
  name: "bucket/costs-settle",
  isPacked: true,
  keys: (input) => frameKeys(input, input.shadowDeltas && input.terms.shadows),
  args: (input) => {
    const { terms, slotUs, isUnused = false, deltas, shadowDeltas, pinnedUs = 0 } = input;
    const { asker = "", amounts } = input.reserved ?? {};
    const head = [pinnedUs, slotUs, isUnused ? 1 : 0];
    const own = amounts ? deltas.flatMap((delta, index) => [delta, amounts[index]!]) : deltas;
    const ofShadows = shadowDeltas ? [...shadowsNumbers(terms), ...shadowDeltas] : [];
    const numbers = [...head, ...frameNumbers(input), ...own, ...ofShadows];
    return [terms.text, asker, numbers];
  },
  decode: (reply, input) => settledBy((reply as readonly [number, Buffer?])[1], input),
});

function settledBy(notes: Buffer | undefined, { terms, scopes }: SettleRequest): Settled {
  return notes ? { crossed: readCrossed(new Numbers(notes), terms.limits, scopes) } : {};
}

/**
 * Settles a slot that a server has granted, unless the slot is already settled. Marks the slot as
 * settled, and books the cost.
 */
export const givenSettle: Script<
  SettleRequest & Frame & GivenSlot & { readonly request: string },
  SlotNoted & Settled
> = defineScript({
  name: costsSettle.name,
  isPacked: true,
  keys: (input) => [
    ...costsSettle.keys(input),
    slotNoteKey(input.prefix, input.bucket, input.slot),
  ],
  args: (input) => [...costsSettle.args(input), input.untilMs, input.request],
  decode: (reply, input) => ({
    ...SLOT_NOTED.read(reply),
    ...settledBy((reply as readonly [Buffer, number, Buffer?])[2], input),
  }),
});
