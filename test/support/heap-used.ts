import { collectGarbage } from "./garbage.ts";

/** Bytes that are held, and not only not collected yet. */
export function heapUsed(): number {
  collectGarbage();
  return process.memoryUsage().heapUsed;
}
