/** Every operation. A new one goes into the list at the end of its file, and every door has it. */
import { BUCKET_OPERATIONS } from "./buckets.ts";
import { CHANGE_OPERATIONS } from "./changes.ts";
import { ENDPOINT_OPERATIONS } from "./endpoints.ts";
import { JOB_OPERATIONS } from "./jobs.ts";
import type { AnyOperation } from "./operation.ts";
import { QUEUE_OPERATIONS } from "./queues.ts";

export const OPERATIONS: readonly AnyOperation[] = [
  ...BUCKET_OPERATIONS,
  ...QUEUE_OPERATIONS,
  ...JOB_OPERATIONS,
  ...ENDPOINT_OPERATIONS,
  ...CHANGE_OPERATIONS,
];
