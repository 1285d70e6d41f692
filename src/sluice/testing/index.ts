export { createManualClock, type ManualClock } from "./manual-clock.ts";

export {
  startFakeDownstream,
  type Arrival,
  type FakeAnswer,
  type FakeDownstream,
  type FakeDownstreamOptions,
} from "./fake-downstream.ts";

export { worstWindow } from "./worst-window.ts";
