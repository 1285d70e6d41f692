/** Every operation. A new one goes into the list at the end of its file, and every door has it. */
import { BUCKET_OPERATIONS } from "./buckets.ts";
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

/** Runs the operation of a name, for doors that have a form of their own for it. */
export async function performNamed<Result>(
  name: string,
  door: Door,
  input: Readonly<Record<string, unknown>>,
): Promise<Result> {
  const called = OPERATIONS.find((each) => each.name === name)!;
  return (await perform(called, door, input)) as Result;
}
