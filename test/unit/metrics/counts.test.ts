import { describe, expect, it } from "vitest";
import type { CountedMetric } from "../../../src/core/events/metrics.ts";
import { createObserving } from "../../../src/core/events/observer.ts";
import { MOST_NAMES, OTHER, SluicesCounts } from "../../../src/insight/metrics/counts.ts";

const SLOTS = "sluice_bucket_slots_total";
const WAITS = "sluice_bucket_wait_seconds";

function openCounts(sluices: number) {
  const counts = new SluicesCounts();
  const observings = Array.from({ length: sluices }, () => createObserving());
  for (const observing of observings) counts.add(observing);
  const bucketsOf = (metric: CountedMetric) =>
    new Set(counts.read(metric).map(({ labels }) => labels["bucket"]!));
  return { counts, observings, bucketsOf };
}

describe("the counts of a process with several sluices", () => {
  it.each([1, 2])("name the same thousand buckets in every metric, with %i sluices", (sluices) => {
    const { observings, bucketsOf } = openCounts(sluices);
    for (let at = 0; at < MOST_NAMES + 9; at += 1) {
      const { observer } = observings[at % sluices]!;
      observer!.series(SLOTS, `b${at}`, "granted").add(1);
      if (at % 3 === 0) observer!.series(WAITS, `b${at}`, "normal").add(5);
    }

    const [slots, waits] = [bucketsOf(SLOTS), bucketsOf(WAITS)];

    expect(slots.size).toBe(MOST_NAMES + 1);
    expect(slots).toContain(OTHER);
    expect([...waits].filter((bucket) => !slots.has(bucket))).toEqual([]);
  });

  it("show a histogram from its first value on, and after a reset from its next one", () => {
    const { counts, observings } = openCounts(1);
    const waits = observings[0]!.observer!.series(WAITS, "api", "normal");
    const shown = () => counts.read(WAITS).length;
    const seen = [shown()];

    waits.add(5);
    seen.push(shown());
    counts.reset(WAITS);
    seen.push(shown());
    waits.add(5);
    seen.push(shown());

    expect(seen).toEqual([0, 1, 0, 1]);
  });

  it("keep what a closed sluice has counted", () => {
    const { counts, observings } = openCounts(2);
    for (const { observer } of observings) observer!.series(SLOTS, "api", "granted").add(2);

    for (const end of observings[0]!.whenClosed) end();

    expect(counts.read(SLOTS)).toMatchObject([{ labels: { bucket: "api" }, value: 4 }]);
  });
});
