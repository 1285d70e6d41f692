import {
  LEAST_RATIO,
  MOST_NAMES,
  MOST_RATIO,
  MOST_SAMPLES,
} from "../../../../core/policy/ratios.ts";
import { ratiosKey } from "../keys.ts";
import { shapeScript } from "../script.ts";
import { constant, int, mapped, rest, text } from "../shape.ts";

export const ratiosLearn = shapeScript({
  name: "bucket/ratios-learn",
  keys: ({ prefix, bucket }: { readonly prefix: string; readonly bucket: string }) => [
    ratiosKey(prefix, bucket),
  ],
  args: {
    mostNames: constant(MOST_NAMES),
    mostSamples: constant(MOST_SAMPLES),
    least: constant(LEAST_RATIO),
    most: constant(MOST_RATIO),
    seen: rest({ name: text, ratio: int }),
  },
  reply: mapped(
    rest({ name: text, mean: int }),
    (means) => new Map(means.map(({ name, mean }) => [name, mean])),
  ),
});
