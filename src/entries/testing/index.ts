export { createManualClock, type ManualClock } from "./manual-clock.ts";

export {
  startFakeDownstream,
  type Arrival,
  type FakeAnswer,
  type FakeDownstream,
  type FakeDownstreamOptions,
} from "./fake-downstream.ts";

export { worstWindow } from "./worst-window.ts";

export {
  advanceTime,
  drainQueue,
  failNext,
  type DrainedQueue,
  type DrainQueueOptions,
} from "./queues.ts";
