export { createSluice, type Sluice } from "./sluice.ts";

export type { QueueOptions, SluiceOptions } from "./sluice-options.ts";

export { throttled } from "./default-sluice.ts";

export type { Emitter, SluiceEvents, StoreEvent } from "./core/events.ts";

export {
  ClosedError,
  CostTooLargeError,
  InvalidOptionError,
  LeaseLostError,
  LineFullError,
  RedisRequiredError,
  SluiceError,
  StoreUnavailableError,
  WaitTooLongError,
  type ErrorCode,
} from "./core/errors.ts";

export { contract, type Contract, type ContractOptions } from "./core/policy/contract.ts";

export {
  concurrency,
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  tokenBucket,
  type LimitsOptions,
} from "./core/policy/limit-makers.ts";

export type { Limit } from "./core/limits/rule.ts";

export type { Logger } from "./core/logger.ts";

export type { PerKey, Tiers } from "./core/policy/per-key.ts";

export type { PolicyOptions } from "./core/policy/policy.ts";

export type { Priority } from "./core/options.ts";

export type { RateInput } from "./core/limits/rate.ts";

export type { Align } from "./core/limits/calendar-days.ts";

export type { Enqueuing, EnqueueOptionsOf } from "./queue/enqueue.ts";

export type { EnqueueOptions, JobDefaults } from "./queue/enqueue-options.ts";

export type { Job } from "./queue/job.ts";

export {
  HandlerTimeoutError,
  JobFailedError,
  JobLostError,
  JobMissingError,
  JobUnfinishedError,
} from "./queue/job-errors.ts";

export { Discard, RetryAfter } from "./queue/outcome.ts";

export type { Schedule, Schedules } from "./queue/recurring.ts";

export type { Schema } from "./queue/schema.ts";

export type { DeadLetters, FailedJob } from "./queue/dead-letters.ts";

export type { QueueEmitter, QueueEventName, QueueEvents, QueueListener } from "./queue/events.ts";

export type { FailedFilter } from "./queue/failed-filter.ts";

export type { FinishedOptions } from "./queue/finished.ts";

export type { Forecast, JobEta } from "./queue/outlook.ts";

export type { Weights } from "./queue/lane.ts";

export type { Queue } from "./queue/queue.ts";

export type { JobState, QueuedJob } from "./queue/queued-job.ts";

export type { QueueCounts, QueueSteering } from "./queue/steering.ts";

export type { Handler, HandlerResult, JobContext } from "./queue/handler.ts";

export type { Worker } from "./queue/worker.ts";

export type { CloseOptions, WorkerOptions } from "./queue/worker-options.ts";

export type { BreakerOptions } from "./redis/breaker.ts";

export type { RedisClient, RedisInput } from "./redis/connection.ts";

export type { Bucket, TryDecision } from "./throttle/bucket.ts";

export type { BucketOptions } from "./throttle/bucket-options.ts";

export type { Cost } from "./throttle/costs.ts";

export type { Decision, LimitDecision } from "./throttle/decision.ts";

export type { DrawOptions, TryOptions } from "./throttle/draw-options.ts";

export type { AdaptiveOptions, Feedback, ReadFeedback } from "./throttle/feedback-options.ts";

export type { FetchOptions, ThrottledFetch } from "./throttle/throttled-fetch.ts";

export type { OnStateLost, OnStoreDown } from "./throttle/outage/outage-options.ts";

export { rateLimitHeaders } from "./throttle/rate-limit-headers.ts";

export type { Slot } from "./throttle/slot.ts";

export type { BucketState, LimitState } from "./throttle/bucket-state.ts";

export type { KeyOptions, PauseOptions } from "./throttle/steering.ts";

export { throttledClient, type ThrottledClientOptions } from "./throttle/throttled-client.ts";

export type { Throttled, ThrottledOptions } from "./throttle/throttled-function.ts";
