import { expect, it } from "vitest";
import { OPERATIONS } from "../../../src/operations/index.ts";
import type { Context } from "../../../src/operations/operation.ts";

const { cli } = OPERATIONS.find(({ name }) => name === "bucket.configure")!;

/** Limits as a bucket describes them. A text with a unit ends with it. */
function limitsOf(names: readonly string[]) {
  return names.map((name) => ({ name, unit: name.endsWith(" tokens") ? "tokens" : "calls" }));
}

/** Runs `sluice set` on a bucket that has the limits `after` from then on. */
function set(peek: () => Promise<object>, after: readonly object[]) {
  const door = { bucket: async () => ({ peek }) } as unknown as Context;
  const input = { bucket: "stripe", policy: { rate: "20/s" } };
  const perform = async () => ({ status: { name: "stripe", limits: after } });
  return cli.run!(door, input, { options: {}, perform }) as Promise<{ status: object }>;
}

it.each([
  [["100/s"], ["20/s"], undefined],
  [["100/s", "25 at once"], ["20/s"], ["25 at once"]],
  [["100/s"], ["5 at once"], ["100/s"]],
  [["100/s", "900/min tokens"], ["20/s", "5 at once"], ["900/min tokens"]],
  [["100/s", "600/min"], ["20/s"], ["100/s", "600/min"]],
  [["100/s", "600/min"], ["100/s"], ["600/min"]],
])("set on limits %j that leaves %j names %j", async (before, after, dropped) => {
  const limits = limitsOf(before);

  const { status } = await set(async () => ({ limits }), limitsOf(after));

  expect(status).toHaveProperty("name", "stripe");
  expect((status as { dropped?: string[] }).dropped).toEqual(dropped);
});

it("set changes the rate even if the policy before it cannot be read", async () => {
  const unreadable = () => Promise.reject(new Error("no reply"));

  expect(await set(unreadable, [])).toEqual({ status: { name: "stripe", limits: [] } });
});

const read = (options: Readonly<Record<string, unknown>>) =>
  (cli.read!(options, ["stripe"]) as { policy: object }).policy;

it.each([
  [["off"], false],
  [["on"], true],
  [["weights.gold=2", "weights.a.b=0.5"], { weights: { gold: 2, "a.b": 0.5 } }],
  [
    ["floors.small=20/s", "floors.acme=9000/min tokens", "critical=0.5"],
    { floors: { small: "20/s", acme: { tokens: "9000/min" } }, critical: 0.5 },
  ],
])("set reads the turns %j", (fair, option) => {
  expect(read({ fair })).toEqual({ fair: option });
  expect(read({ fair, rate: "5/s" })).toEqual({ rate: "5/s", fair: option });
});

it.each(["gold=2", "weights=2", "weights.gold", "yes", "off on"])(
  "set refuses the turns %j by name",
  (text) => {
    expect(() => read({ fair: text.split(" ") })).toThrow('option "--fair" is');
  },
);
