export { createSluice, type Sluice } from "./sluice.ts";
export type { SluiceOptions } from "./sluice-options.ts";
export { throttled } from "./default-sluice.ts";
export {
  ClosedError,
  CostTooLargeError,
  InvalidOptionError,
  RedisRequiredError,
  SluiceError,
  StoreUnavailableError,
  WaitTooLongError,
  type ErrorCode,
} from "./core/errors.ts";
export type { Logger } from "./core/logger.ts";
export type { PolicyOptions } from "./core/policy.ts";
export type { Priority } from "./core/priority.ts";
export type { RateInput } from "./core/rate.ts";
export type { EnqueueOptions, Job } from "./queue/job.ts";
export type { Queue, QueueCounts } from "./queue/queue.ts";
export type { Handler, JobContext } from "./queue/handler.ts";
export type { Worker } from "./queue/worker.ts";
export type { CloseOptions, WorkerOptions } from "./queue/worker-options.ts";
export type { RedisInput } from "./redis/connection.ts";
export type { Bucket } from "./throttle/bucket.ts";
export type { DrawOptions } from "./throttle/draw-options.ts";
export type { Slot } from "./throttle/slot.ts";
export type { Throttled, ThrottledOptions } from "./throttle/throttled.ts";
