import { describe, expect, it } from "vitest";
import {
  DEFAULTS,
  EXAMPLES,
  FIELDS,
  hasSettings,
  readLink,
  writeLink,
} from "../../../docs/.vitepress/theme/playground/settings.ts";

describe("a link to the playground", () => {
  it.each(EXAMPLES)("brings back the settings of an example: $name", ({ settings }) => {
    expect(readLink(writeLink(settings))).toEqual(settings);
  });

  it("contains only what differs from the defaults", () => {
    expect(writeLink(DEFAULTS)).toBe("");
    expect(writeLink({ ...DEFAULTS, rate: 20, replicas: 8 })).toBe("#rate=20&replicas=8");
  });

  it.each(["#rate=1e9", "#rate=-5", "#rate=5.5", "#rate=x", "#rate=", "#what-you-see", "#%"])(
    "has no effect where it has no valid value: %s",
    (hash) => {
      expect(readLink(hash)).toEqual(DEFAULTS);
    },
  );
});

it("leaves links to headings to the page", () => {
  expect(["", "#rate=5", "#what-you-see"].map(hasSettings)).toEqual([true, true, false]);
});

it("offers only settings within the range of their controls", () => {
  for (const { settings } of EXAMPLES) {
    for (const [name, { least, most, step = 1 }] of Object.entries(FIELDS)) {
      const value = settings[name as keyof typeof FIELDS];
      expect(value >= least && value <= most && (step === 1 || value % step === 0)).toBe(true);
    }
  }
});
