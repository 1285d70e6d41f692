import { shapeScript } from "./script.ts";
import { flag, int, text } from "./shape.ts";

/** Stores the jobs of one limiter of `sluice/bottleneck`. Returns those of all limiters with its id. */
export const reportLimiter = shapeScript({
  name: "limiter-report",
  keys: ({ key }: { readonly key: string }) => [key],
  args: {
    limiter: text,
    queued: int,
    running: int,
    done: int,
    aliveMs: int,
    keptMs: int,
    settings: text,
    isUpdate: flag,
  },
  reply: { queued: int, running: int, done: int, settings: text, isNew: flag },
});
