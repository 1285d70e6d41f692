/** Options of libraries with a task like this one's, and what to look at here instead. */
const NAMES_HERE: ReadonlyMap<string, readonly string[]> = new Map([
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
  ["expiration", ["timeoutMs", "maxWaitMs"]],
  ["datastore", ["redis"]],
  ["clientOptions", ["redis"]],
  // p-throttle and p-queue
  ["limit", ["rate"]],
  ["interval", ["rate"]],
  ["intervalCap", ["rate"]],
  // rate-limiter-flexible
  ["points", ["limits", "cost"]],
  ["duration", ["limits"]],
  ["storeClient", ["redis"]],
  ["keyPrefix", ["prefix"]],
  ["insuranceLimiter", ["onStoreDown"]],
  // BullMQ
  ["connection", ["redis"]],
  ["defaultJobOptions", ["defaults"]],
  ["jobId", ["dedupeId"]],
  ["deduplication", ["dedupeId"]],
  ["repeat", ["every"]],
  ["pattern", ["cron"]],
  ["tz", ["timeZone"]],
  ["lockDuration", ["lockMs"]],
]);

/** What the name of another library's option is called among these, or undefined. */
export function knownElsewhere(name: string, known: readonly string[]): string | undefined {
  return NAMES_HERE.get(name)?.find((here) => known.includes(here));
}
