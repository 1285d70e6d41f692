import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/** Bytes that are held, and not only not collected yet. */
export function heapUsed(): number {
  setFlagsFromString("--expose-gc");
  runInNewContext("gc")();
  return process.memoryUsage().heapUsed;
}
