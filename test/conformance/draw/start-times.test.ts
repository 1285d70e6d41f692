import { describe, expect, it } from "vitest";
import { boundBy, PAUSED } from "../../../src/core/store.ts";
import { createTestReplica, policyOf, slotsOf } from "../../support/draws/test-replica.ts";
import { storeKinds } from "../../support/draws/store-kinds.ts";

const KEY_PAUSED = boundBy(PAUSED, 1);

describe.each(storeKinds())("start times of calls, in $name", ({ open }) => {
  /** A bucket that has just given its slot of this half second, and of which key "k" is paused for a minute. */
  async function used() {
    const { store, clock } = open();
    const policy = policyOf({ rate: "2/s", perKey: { rate: "1/s" } });
    const [replica, other] = ["a", "b"].map((name) =>
      createTestReplica(store, { bucket: "b", name, policy }),
    );
    await replica!.drawAll([{ wanted: 1, key: "first" }]);
    await replica!.steer({ do: "pause", durationUs: 60_000_000 }, "k");
    return { replica: replica!, other: other!, nowUs: clock.nowUs };
  }

  it.each([
    { isBounded: true, soonestInUs: 60_000_000, bindsAt: KEY_PAUSED },
    { isBounded: false, soonestInUs: undefined, bindsAt: 1 },
  ])(
    "include the time of a key behind other waiting keys, if its calls are bounded: $isBounded",
    async ({ isBounded, soonestInUs, bindsAt }) => {
      const { replica, nowUs } = await used();

      const { granted } = await replica.drawAll([
        { wanted: 1, key: "other" },
        { wanted: 1, key: "k", isBounded },
      ]);

      const soonestUs = soonestInUs === undefined ? 0 : nowUs() + soonestInUs;
      expect(granted[1]).toMatchObject({ soonestUs, bindsAt, notBeforeUs: 0 });
      expect(granted.map((_, index) => slotsOf({ granted } as never, index))).toEqual([[], []]);
    },
  );

  it("are returned to a request for no slots, which draws nothing and keeps its positions", async () => {
    const { replica, other, nowUs } = await used();
    const waiting = await replica.drawAll([{ wanted: 1, key: "other" }]);

    const looked = await replica.drawAll([{ wanted: 0, key: "k", isBounded: true }]);
    const byOther = await other.drawAll([{ wanted: 0, key: "other", isBounded: true }]);

    expect(looked.granted[0]).toMatchObject({
      soonestUs: nowUs() + 60_000_000,
      bindsAt: KEY_PAUSED,
    });
    expect(slotsOf(looked)).toEqual([]);
    expect(looked.position).toEqual(waiting.position);
    expect(byOther.granted[0]).toMatchObject({ soonestUs: nowUs() + 500_000, bindsAt: 1 });
    // Who only asks takes no share of what the others draw.
    expect(byOther.alive).toBe(1);
  });
});
