/**
 * What options of libraries with a task like this one's are called here, the nearest first; or, where there is no
 * such option, what to know instead.
 */
const NAMES_HERE: ReadonlyMap<string, readonly string[] | string> = new Map<
  string,
  readonly string[] | string
>([
  // Bottleneck
  ["minTime", ["rate"]],
  ["maxConcurrent", ["concurrency"]],
  ["reservoir", ["limits"]],
  ["reservoirRefreshAmount", ["limits"]],
  ["reservoirRefreshInterval", ["limits"]],
  ["reservoirIncreaseAmount", ["limits"]],
  ["reservoirIncreaseInterval", ["limits"]],
  ["highWater", ["maxWaiting"]],
  ["strategy", ["maxWaiting"]],
  ["weight", ["cost"]],
  ["expiration", "a call has to end by itself; a worker has timeoutMs for its jobs"],
  ["datastore", ["redis"]],
  ["clientOptions", ["redis"]],
  // p-throttle and p-queue
  ["limit", ["rate", "limits"]],
  ["interval", ["rate", "limits"]],
  ["intervalCap", ["rate", "limits"]],
  ["strict", ["limits"]],
  // rate-limiter-flexible
  ["points", ["limits", "cost"]],
  ["duration", ["limits"]],
  ["storeClient", ["redis"]],
  ["keyPrefix", ["prefix"]],
  ["insuranceLimiter", ["onStoreDown"]],
  ["inMemoryBlockOnConsumed", "refusals are always remembered"],
  // BullMQ
  ["connection", ["redis"]],
  ["limiter", "the bucket of the queue has the rate"],
  ["max", ["rate", "limits"]],
  ["defaultJobOptions", ["defaults"]],
  ["delay", ["delayMs", "baseMs"]],
  ["timeout", "a worker has timeoutMs for its jobs"],
  ["type", "a backoff is exponential, with full jitter: { baseMs, maxMs }"],
  ["jobId", ["dedupeId"]],
  ["deduplication", ["dedupeId"]],
  ["repeat", ["every", "cron"]],
  ["pattern", ["cron"]],
  ["tz", ["timeZone"]],
  ["lockDuration", ["lockMs"]],
  ["removeOnComplete", "done jobs are kept for a day, 1,000 at most"],
  ["removeOnFail", "failed jobs are kept until they are replayed or purged"],
  // What is said elsewhere in this library.
  ["maxWaitMs", "each call says it: draw(), with() or throttled()"],
]);

/** What to say of an option of another library, or of another place here, in place of one of these; undefined of any else. */
export function knownElsewhere(name: string, known: readonly string[]): string | undefined {
  const here = NAMES_HERE.get(name);
  if (here === undefined || typeof here === "string") return here;
  const named = here.filter((each) => known.includes(each));
  return named.length === 0 ? undefined : `did you mean ${named.join(" or ")}?`;
}
