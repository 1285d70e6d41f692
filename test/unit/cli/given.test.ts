import { expect, it } from "vitest";
import { settingsOf } from "../../../src/operations/settings.ts";
import { InvalidOptionError } from "../../../src/core/errors.ts";

it("reads settings by the names that are shown, and JSON", () => {
  const read = settingsOf(["maxBacklog.all=5", "weights.a.b=2", "defaults.priority=low"]);
  const levels = settingsOf(['weights=[{"acme":3},null]', "defaults=code"]);

  expect(JSON.parse(JSON.stringify(read))).toEqual({
    maxBacklog: { all: 5 },
    weights: { "a.b": 2 },
    defaults: { priority: "low" },
  });
  expect({ ...levels }).toEqual({ weights: [{ acme: 3 }, null], defaults: "code" });
});

it.each([
  [["maxBacklog"]],
  [["maxBacklog=500", "maxBacklog.all=600"]],
  [["maxBacklog.all=600", "maxBacklog=500"]],
  [["maxBacklog=500", "maxBacklog=600"]],
  [['defaults={"attempts":3}', "defaults.priority=low"]],
  [["forMs=1000"]],
  [["maxBacklog=5", "generation=3"]],
  [["by=bob"]],
  [["toString.a=1"]],
  [["weights.0.acme=3"]],
  [["weights={acme"]],
])("refuses %j", (given) => {
  expect(() => settingsOf(given)).toThrow(InvalidOptionError);
  expect(() => settingsOf(given)).toThrow(
    expect.objectContaining({ option: "--setting", value: given.at(-1) }),
  );
});
