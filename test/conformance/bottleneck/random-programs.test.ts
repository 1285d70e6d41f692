import RealBottleneck from "bottleneck";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import Bottleneck from "sluice/bottleneck";
import { runProgram, type Operation, type Program } from "./run-program.ts";

const RUNS = Number(process.env["HISTORIES"] ?? 60);
const LIMIT_MS = 600_000;
/** Times are multiples of this, so that two of them are equal or far apart. */
const UNIT_MS = 50;

const maybe = <Value>(values: fc.Arbitrary<Value>) => fc.option(values, { nil: undefined });
const units = (most: number) => fc.nat(most).map((count) => count * UNIT_MS);

const settings = fc.record({
  maxConcurrent: maybe(fc.integer({ min: 1, max: 3 })),
  minTime: maybe(units(3)),
  highWater: maybe(fc.nat(4)),
  strategy: maybe(fc.constantFrom(1, 2, 3, 4)),
  penalty: maybe(fc.constantFrom(UNIT_MS * 10, 600_000)),
  reservoir: maybe(fc.nat(6)),
  rejectOnDrop: maybe(fc.boolean()),
  trackDoneStatus: maybe(fc.boolean()),
});

const changes = fc.record(
  {
    maxConcurrent: fc.option(fc.integer({ min: 1, max: 4 }), { nil: null }),
    minTime: units(3),
    highWater: fc.option(fc.nat(4), { nil: null }),
    strategy: fc.constantFrom(1, 2, 3, 4),
    reservoir: fc.option(fc.nat(6), { nil: null }),
  },
  { requiredKeys: [] },
);

const job = fc.record({
  do: fc.constantFrom("schedule", "submit", "wrap"),
  work: fc.constantFrom("return", "throw", "wait", "wait"),
  options: fc.record(
    {
      priority: fc.integer({ min: -1, max: 10 }),
      weight: fc.nat(3),
      expiration: units(4).map((ms) => ms + UNIT_MS),
      id: fc.constantFrom("same", "other"),
    },
    { requiredKeys: [] },
  ),
  retries: fc.constantFrom(0, 0, 1, 2),
});

const operation: fc.Arbitrary<Operation> = fc.oneof(
  { weight: 40, arbitrary: job as fc.Arbitrary<Operation> },
  { weight: 20, arbitrary: fc.record({ do: fc.constant("end" as const), nth: fc.nat(3) }) },
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant("update" as const),
      settings: changes,
    }) as fc.Arbitrary<Operation>,
  },
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant("increment" as const),
      by: fc.nat(5),
    }),
  },
  {
    weight: 1,
    // With `dropWaitingJobs: false`, Bottleneck emits events for an internal job.
    arbitrary: fc.constant({ do: "stop" as const }),
  },
);

const program = fc.record({
  settings,
  operations: fc.array(fc.record({ what: operation, thenMs: fc.constantFrom(2_000) }), {
    minLength: 1,
    maxLength: 14,
  }),
}) as fc.Arbitrary<Program>;

describe("a limiter of sluice/bottleneck", () => {
  it(
    "does in random programs what Bottleneck does",
    async () => {
      await fc.assert(
        fc.asyncProperty(program, async (given) => {
          const expected = await runProgram(RealBottleneck as unknown as typeof Bottleneck, given);
          const actual = await runProgram(Bottleneck, given);

          expect(actual).toEqual(expected);
        }),
        { numRuns: RUNS },
      );
    },
    LIMIT_MS,
  );
});
