import { expect, it } from "vitest";
import { simulate, type Arrival } from "../../../src/entries/simulate/index.ts";
import { createRandom, exponential } from "../../../src/entries/simulate/random.ts";
import type { BucketOptions } from "../../../src/throttle/bucket/bucket-options.ts";
import { runRealLines } from "./real-lines.ts";
import { beginVirtualTime } from "./virtual-time.ts";

const REPLICAS = 4;
const LATENCY_MS = 20;
const FOR_MS = 1_500;
/** One horizon of slots. Where keys take turns, a turn that goes to another replica moves calls by this much. */
const MOST_APART_MS = 100;

interface Load {
  readonly name: string;
  readonly policy: BucketOptions;
  readonly perSecond: number;
  readonly keys: number;
}

const LOADS: readonly Load[] = [
  { name: "one rate", policy: { rate: "100/s" }, perSecond: 220, keys: 0 },
  { name: "keys that take turns", policy: { rate: "100/s" }, perSecond: 220, keys: 10 },
  {
    name: "a rate per key",
    policy: { rate: "200/s", perKey: { rate: "20/s" } },
    perSecond: 220,
    keys: 15,
  },
  {
    name: "few calls at once",
    policy: { rate: "200/s", concurrency: 3 },
    perSecond: 220,
    keys: 0,
  },
];

function arrivalsOf({ perSecond, keys }: Load): Arrival[] {
  const random = createRandom(7);
  const arrivals: Arrival[] = [];
  for (let atMs = 0; atMs < FOR_MS; atMs += exponential(random, perSecond / 1_000)) {
    const key = keys === 0 ? {} : { key: `key-${Math.floor(random() * keys)}` };
    arrivals.push({ atMs, replica: Math.floor(random() * REPLICAS), ...key });
  }
  return arrivals;
}

it.each(LOADS)(
  "a simulated call starts within a horizon of the call in the lines of four processes: $name",
  async (load) => {
    const arrivals = arrivalsOf(load);
    const time = beginVirtualTime();
    const real = await runRealLines(load.policy, arrivals, {
      replicas: REPLICAS,
      latencyMs: LATENCY_MS,
      time,
    }).finally(() => time.end());

    const simulated: number[] = [];
    simulate({
      policy: load.policy,
      arrivals,
      replicas: REPLICAS,
      downstream: { latencyMs: LATENCY_MS },
      onCall: ({ startedMs }) => void simulated.push(startedMs),
    });

    const apartMs = real
      .toSorted((a, b) => a - b)
      .map((startedMs, index) => Math.abs(startedMs - simulated[index]!));
    expect(simulated).toHaveLength(arrivals.length);
    expect(real).toHaveLength(arrivals.length);
    expect(Math.max(...apartMs)).toBeLessThanOrEqual(MOST_APART_MS);
  },
);
