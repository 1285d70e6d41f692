import { afterEach, beforeEach } from "vitest";
import {
  startFakeDownstream,
  type FakeDownstream,
  type FakeDownstreamOptions,
} from "sluice/testing";

/** A fake downstream that each test of a file has anew; it closes after the test. */
export function useDownstream(options?: FakeDownstreamOptions): Omit<FakeDownstream, "close"> {
  let current: FakeDownstream;
  beforeEach(async () => {
    current = await startFakeDownstream(options);
  });
  afterEach(() => current.close());
  return {
    get url() {
      return current.url;
    },
    get arrivals() {
      return current.arrivals;
    },
    get refused() {
      return current.refused;
    },
    worst: (windowMs) => current.worst(windowMs),
  };
}
