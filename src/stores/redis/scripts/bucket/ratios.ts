import {
  LEAST_RATIO,
  MOST_NAMES,
  MOST_RATIO,
  MOST_SAMPLES,
} from "../../../../core/policy/ratios.ts";
import type { LearnRequest } from "../../../../core/store.ts";
import { ratiosKey } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";

type Learn = LearnRequest & { readonly prefix: string };

export const ratiosLearn: Script<Learn, ReadonlyMap<string, number>> = defineScript({
  name: "bucket/ratios-learn",
  keys: ({ prefix, bucket }) => [ratiosKey(prefix, bucket)],
  args: ({ seen }) => [
    MOST_NAMES,
    MOST_SAMPLES,
    LEAST_RATIO,
    MOST_RATIO,
    ...seen.flatMap(({ name, ratio }) => [name, ratio]),
  ],
  decode(reply) {
    const parts = reply as readonly (string | number)[];
    const means = new Map<string, number>();
    for (let index = 0; index < parts.length; index += 2) {
      means.set(String(parts[index]), Number(parts[index + 1]));
    }
    return means;
  },
});
