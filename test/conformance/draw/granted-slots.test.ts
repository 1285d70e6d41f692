import { describe, expect, it } from "vitest";
import { concurrency, leakyBucket, tokenBucket } from "../../../src/core/policy/limit-makers.ts";
import type { SettleRequest } from "../../../src/core/store.ts";
import { createTestReplica, policyOf, slotsOf } from "../../support/draws/test-replica.ts";
import { storeKinds, type PinnedStore } from "../../support/draws/store-kinds.ts";

const unit = "tokens";
const policy = policyOf({
  limits: [
    tokenBucket({ unit, capacity: 1_000, refill: "1/h" }),
    tokenBucket({ unit, capacity: 10, refill: "1/s", shadow: true }),
    leakyBucket("5/s", { shadow: true }),
  ],
  perKey: { limits: [tokenBucket({ unit, capacity: 500, refill: "1/h" }), concurrency(5)] },
});
const MINUTE_MS = 60_000;

/** A call of 400 tokens that took 100, as a server settles it. */
async function drawn(pinned: PinnedStore) {
  let settling: SettleRequest | undefined;
  const store = {
    ...pinned.store,
    settle: async (request: SettleRequest) => void (settling = request),
  };
  const replica = createTestReplica(store, { bucket: "b", name: "a", policy });
  const reply = await replica.drawAll([{ wanted: 1, cost: { calls: 1, tokens: 400 }, key: "k" }]);
  const [slotUs] = slotsOf(reply);
  await replica.settle(slotUs!, { tokens: -300 }, "k");
  const untilMs = Math.ceil(pinned.clock.nowUs() / 1_000) + MINUTE_MS;
  const note = { bucket: "b", slot: "s", untilMs, what: "settle" } as const;
  const looks = async () => [await replica.peek(), await replica.peek("k")];
  return { settling: settling!, note, looks };
}

describe.each(storeKinds())("a slot that a server has granted, in $name", ({ open }) => {
  it("is settled once, in all limits that count it", async () => {
    const [plain, given] = [open(), open()];
    const [one, other] = [await drawn(plain), await drawn(given)];
    const estimated = await other.looks();

    await plain.store.settle(one.settling);
    const first = await given.store.noteSlot(other.note, other.settling);
    const settled = await other.looks();

    expect(first).toEqual({ state: "held", leftMs: MINUTE_MS });
    expect(settled).toEqual(await one.looks());
    expect(settled).not.toEqual(estimated);
  });

  it("cannot be settled after it has expired", async () => {
    const pinned = open();
    const { settling, note, looks } = await drawn(pinned);
    const before = await looks();

    const noted = await pinned.store.noteSlot(
      { ...note, untilMs: note.untilMs - MINUTE_MS },
      settling,
    );

    expect(noted).toEqual({ state: "over", leftMs: 0 });
    expect(await looks()).toEqual(before);
  });
});
