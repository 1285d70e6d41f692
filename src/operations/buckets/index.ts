/** The operations of buckets, in the order of the command line and the reference. */
import type { AnyOperation } from "../operation.ts";
import { budgets, grant, restore } from "./budgets.ts";
import { bucket, buckets, history, keys, overview, replicas, why } from "./look.ts";
import { configure, pause, preview, resume, undo } from "./steer.ts";
import { trial } from "./trial.ts";

export { allBuckets } from "./look.ts";
export { changeOf, readsPreview } from "./steer.ts";

export const BUCKET_OPERATIONS: readonly AnyOperation[] = [
  overview,
  replicas,
  buckets,
  bucket,
  why,
  keys,
  history,
  preview,
  trial,
  configure,
  pause,
  resume,
  budgets,
  grant,
  restore,
  undo,
];
