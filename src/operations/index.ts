/** All operations. The HTTP API, the command line and MCP read this list. */
import { BUCKET_OPERATIONS } from "./buckets/index.ts";
import { CHANGE_OPERATIONS } from "./changes.ts";
import { ENDPOINT_OPERATIONS } from "./endpoints.ts";
import { JOB_OPERATIONS } from "./jobs.ts";
import { perform, type AnyOperation, type Door } from "./operation.ts";
import { QUEUE_OPERATIONS } from "./queues.ts";

export const OPERATIONS: readonly AnyOperation[] = [
  ...BUCKET_OPERATIONS,
  ...QUEUE_OPERATIONS,
  ...JOB_OPERATIONS,
  ...ENDPOINT_OPERATIONS,
  ...CHANGE_OPERATIONS,
];

/** Runs an operation by its name, for routes that are not created from the list. */
export async function performNamed<Result>(
  name: string,
  door: Door,
  input: Readonly<Record<string, unknown>>,
): Promise<Result> {
  const called = OPERATIONS.find((each) => each.name === name)!;
  return (await perform(called, door, input)) as Result;
}
