export { createSluice, type Sluice } from "./create-sluice.ts";

export type { QueueOptions, SluiceOptions } from "./options.ts";

export { throttled } from "./throttled.ts";

export type { Emitter, ListenOptions, SluiceEvents, StoreEvent } from "../core/events/events.ts";

export { type Codec, type Encoded, type NewPayload, type PayloadInfo } from "../core/codec.ts";
export { CodecError, type PayloadKind } from "../core/errors.ts";

export {
  BudgetSpentError,
  CannotUndoError,
  ChangedError,
  ClosedError,
  CostTooLargeError,
  InvalidOptionError,
  LeaseLostError,
  LineFullError,
  RedisRequiredError,
  StoreUnavailableError,
  WaitTooLongError,
  type ErrorCode,
} from "../core/errors.ts";

export { contract, type Contract, type ContractOptions } from "../core/policy/contract.ts";

export {
  budget,
  concurrency,
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  tokenBucket,
  type AutoConcurrencyOptions,
  type BudgetOptions,
  type ConcurrencyOptions,
  type LimitsOptions,
} from "../core/policy/limit-makers.ts";

export type { Limit } from "../core/limits/rule.ts";

export type {
  Answer,
  ChangedAnswer,
  Cooldown,
  Feedback,
  FeedbackContext,
  QuotaPeriod,
  ReadFeedback,
} from "../core/answer.ts";

export type { Key, NamedKeys } from "../core/key-path.ts";

export type { Logger } from "../core/logger.ts";

export type { FairOptions } from "../core/policy/fair.ts";

export type { KeyLimits, Tiers } from "../core/policy/key-limits.ts";

export type { PerKey, PerLevel, PerName } from "../core/policy/per-key.ts";

export type { PolicyOptions } from "../core/policy/policy.ts";

export type { Priority } from "../core/input/options.ts";

export type { RateInput } from "../core/limits/rate.ts";

export type { Align } from "../core/limits/calendar-days.ts";

export type { Enqueuing, EnqueueOptionsOf } from "../queue/enqueue/enqueue.ts";

export type { Debounce, EnqueueOptions } from "../queue/options.ts";

export type {
  JobDefaults,
  KeepDone,
  KeepFailed,
  MaxBacklog,
} from "../core/input/queue-settings.ts";

export type {
  CloseOptions,
  DrainOptions,
  WorkerOptions,
  BatchOptions,
  BatchWorkerOptions,
} from "../queue/worker/worker-options.ts";

export type { QueueCounts } from "../stores/redis/scripts/queue/steering.ts";
export type { FromJson, Job, JobState } from "../queue/job.ts";

export {
  GroupClosedError,
  HandlerResponseError,
  HandlerTimeoutError,
  JobCancelledError,
  JobFailedError,
  JobLostError,
  JobMissingError,
  JobStateError,
  JobUnfinishedError,
  MiddlewareError,
  QueueFullError,
} from "../queue/errors.ts";

export { SluiceError, isSluiceError, type AnySluiceError } from "./errors.ts";

export type { ErrorCause, ErrorFacts, FailureFacts } from "../queue/failure.ts";

export { Discard, RetryAfter } from "../queue/worker/outcome.ts";

export type { Schedule, Schedules } from "../queue/enqueue/schedules.ts";

export type { Schema } from "../queue/enqueue/data.ts";

export type {
  DeadLetters,
  FailedFilter,
  FailedGroup,
  FailedGroups,
  FailedGroupsFilter,
  FailedJob,
} from "../queue/manage/dead-letters.ts";

export type {
  QueueEmitter,
  QueueEventName,
  QueueEvents,
  QueueListener,
} from "../queue/manage/events.ts";

export type { FinishedOptions } from "../queue/manage/finished.ts";

export type { JobExplanation, WaitsFor } from "../queue/forecast/explain.ts";
export type { LaneStatus, OldestDue, QueueSetting, QueueStatus } from "../queue/forecast/status.ts";
export type {
  Forecast,
  JobEta,
  NoForecastReason,
  NoPromise,
  QueuePreview,
} from "../queue/forecast/forecast.ts";

export type { Ordered } from "../queue/lanes/lane-options.ts";
export type { Weights } from "../queue/lanes/lane-options.ts";

export type { JobsPage, Queue } from "../queue/queue.ts";

export type { QueuedJob } from "../queue/enqueue/job-handle.ts";

export type { BulkChanges, RemoveFilter, RescheduleFilter } from "../queue/manage/bulk.ts";

export type { DueOptions } from "../queue/manage/changes.ts";

export type { JobsFilter, JobsOptions } from "../queue/manage/pages.ts";

export type { QueueSteering } from "../queue/manage/control.ts";

export type {
  Pauses,
  QueuePause,
  QueuePauseOptions,
  QueueResumeOptions,
} from "../queue/manage/pauses.ts";

export type {
  QueueByHand,
  QueueSetOptions,
  QueueUndoOptions,
  SettingByHand,
} from "../queue/manage/overrides.ts";

export type { KeyFilter, OfKey } from "../queue/options.ts";

export type {
  BatchContext,
  BatchHandler,
  BatchOutcomes,
  GivenHandler,
  HandlerInput,
  Handler,
  HandlerResult,
  Handlers,
  JobContext,
} from "../queue/worker/context.ts";

export type { EnqueueCall, EnqueueMiddleware, JobToEnqueue } from "../queue/enqueue/middleware.ts";
export type {
  BatchMiddleware,
  HandlerMiddleware,
  Middleware,
  WorkerMiddleware,
} from "../queue/worker/handlers/middleware.ts";

export type { FinalJob, GroupOptions, JobGroup } from "../queue/enqueue/groups.ts";
export type { AwaitedParents, JobFlow, JobReference, ParentState } from "../queue/job.ts";
export type { ParentOutcome } from "../queue/manage/flows.ts";
export type { OnParentFailure } from "../stores/redis/scripts/queue/flows.ts";
export type { Drained } from "../queue/worker/drain.ts";
export type { Worker } from "../queue/worker/worker.ts";

export type { WorkerStatus } from "../queue/worker/report.ts";

export type { WorkerEmitter, WorkerEvents } from "../queue/worker/report.ts";

export type { BreakerOptions } from "../stores/redis/requests/breaker.ts";

export type { RedisClient, RedisInput } from "../stores/redis/connection.ts";

export type { Bucket } from "../throttle/bucket.ts";

export type { TryDecision, Decision, LimitDecision } from "../throttle/try/decision.ts";

export type {
  BucketEvents,
  ChangeEvent,
  AwayEvent,
  BackEvent,
  BudgetEvent,
  ConcurrencyEvent,
  UnreachableEvent,
  ReachableEvent,
  CooldownEvent,
  RefusedEvent,
  SlowedEvent,
} from "../throttle/bucket/bucket-events.ts";

export type { BucketOptions } from "../throttle/bucket/bucket-options.ts";

export type {
  MemberCalls,
  Pool,
  PoolCalls,
  PoolDecision,
  PoolChange,
  PoolMember,
  PoolOptions,
  PoolSlot,
  PoolThrottled,
  TriesOption,
} from "../throttle/bucket/pool.ts";

export type { MemberChanges, MemberLimits } from "../core/policy/pool.ts";

export type {
  AnsweredCall,
  CallDefaultsOptions,
  CostOfCall,
  SentCall,
  SettleOfCall,
} from "../throttle/wrap/call-defaults.ts";

export type { Cost } from "../throttle/costs.ts";

export type {
  DrawOptions,
  RunOptions,
  TryOptions,
  OnSlot,
  SlotEvent,
  AdaptiveOptions,
  FetchOptions,
  RetryBy,
  RetryContext,
  ThrottledFetch,
  ThrottledOptions,
} from "../throttle/call-options.ts";

export { readAnswer } from "../throttle/feedback/answer.ts";
export type { Throttle, Throttled } from "../throttle/wrap/throttled-types.ts";

export type { OnStateLost, OnStoreDown } from "../throttle/outage/on-store-down.ts";

export { rateLimitHeaders } from "../throttle/try/rate-limit-headers.ts";

export type { Slot } from "../throttle/slot/slot.ts";

export type {
  BucketState,
  KeyTurn,
  LimitState,
  ShadowState,
} from "../throttle/bucket/bucket-state.ts";
export type {
  ByHand,
  ConfigureOptions,
  KeyOptions,
  PauseOptions,
  ResumeOptions,
  UndoOptions,
} from "../throttle/bucket/live-control.ts";
export type {
  BucketOutlook,
  BucketPreview,
  PreviewOptions,
} from "../throttle/bucket/facts/preview.ts";
export type {
  BucketBrief,
  BucketStatus,
  History,
  HistoryOptions,
  Point,
  ReplicaOfBucket,
  SetBy,
  Waiting,
} from "../throttle/bucket/facts/status.ts";
export type {
  BucketChange,
  ChangeFacts,
  EndpointAction,
  EndpointOfTenant,
  QueueAction,
  LoggedChange,
  QueueChange,
  SteeredFacts,
} from "../core/stores/insight/changes.ts";
export type { WhoAndWhy } from "../core/input/who-and-why.ts";
export type {
  ChangesOptions,
  ListedQueue,
  ListedWorker,
  Overview,
  OverviewOptions,
  Replica,
  Unreachable,
} from "../insight/overview.ts";

export { throttledClient, type ThrottledClientOptions } from "../throttle/wrap/client.ts";
