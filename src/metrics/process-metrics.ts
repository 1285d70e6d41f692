/** The metrics of this process's own calls, of one sluice or of several that share a register. */
import { Registry } from "prom-client";
import * as z from "zod";
import { PRIORITIES, readOptions } from "../core/input/options.ts";
import { SLOT_OUTCOMES, type Observing } from "../core/events/observer.ts";
import { SluicesCounts, type Counts, type Spread } from "./counts.ts";
import { exportSamples, exportSpreads, type Sample, type SpreadSample } from "./exported.ts";
import { PROCESS_METRICS, type ProcessMetric } from "./names.ts";
import { isRegister, registerAll, type MetricsRegister } from "./register.ts";

export interface MetricsOptions {
  /** Where the metrics are kept, beside others: a `Registry` of prom-client, such as its `register`. Defaults to one of the sluice's own. */
  readonly register?: MetricsRegister | undefined;
}

export interface Metrics {
  /** What was given, or the sluice's own. */
  readonly register: MetricsRegister;
  /** The type of `text()`, for the header of an answer: `"text/plain; version=0.0.4; charset=utf-8"`. */
  readonly contentType: string;
  /** All that the register has, as Prometheus reads it. */
  text(): Promise<string>;
}

/** @internal */
export const REGISTER: z.ZodType<MetricsRegister> = z.custom<MetricsRegister>(isRegister, {
  error: 'give a Registry of prom-client, such as its "register", or leave it out',
});
const OPTIONS = z.strictObject({ register: REGISTER.optional() });

/** What a register tells of. */
interface Told {
  readonly metrics: ReadonlyMap<ProcessMetric, object>;
  readonly counts: SluicesCounts;
}

const toldBy = new WeakMap<MetricsRegister, Told>();
const ownRegisters = new WeakMap<Observing, MetricsRegister>();

/**
 * The metrics of a sluice. From the first call on, its calls are counted.
 *
 * @throws {@link InvalidOptionError} when what was given is no register, or has other metrics of these names.
 */
export function openMetrics(observing: Observing, given: MetricsOptions = {}): Metrics {
  const where = "metrics()";
  const { register: asked } = readOptions(where, OPTIONS, given);
  const own = ownRegisters.get(observing) ?? (new Registry() as MetricsRegister);
  const register = asked ?? own;
  const told = toldBy.get(register) ?? createTold();
  registerAll(where, register, told.metrics);
  toldBy.set(register, told);
  ownRegisters.set(observing, own);
  told.counts.add(observing);
  return metricsOf(register);
}

export function metricsOf(register: MetricsRegister): Metrics {
  return {
    register,
    get contentType() {
      return register.contentType;
    },
    text: () => register.metrics(),
  };
}

function createTold(): Told {
  const counts = new SluicesCounts();

  function resetting(reset: (counts: Counts) => void): () => void {
    return () => counts.each().forEach(reset);
  }

  function spreads(
    name: ProcessMetric,
    read: (counts: Counts) => SpreadSample[],
    reset: (counts: Counts) => void,
  ): [ProcessMetric, object] {
    const source = { read: () => read(counts.sum()), reset: resetting(reset) };
    return [name, exportSpreads(name, PROCESS_METRICS[name], source)];
  }

  const slots = {
    read: () => readSlots(counts.sum()),
    reset: resetting((each) => each.resetBuckets()),
  };
  const metrics = new Map<ProcessMetric, object>([
    spreads("sluice_bucket_wait_seconds", readWaits, (each) => each.resetBuckets()),
    [
      "sluice_bucket_slots_total",
      exportSamples("sluice_bucket_slots_total", PROCESS_METRICS.sluice_bucket_slots_total, slots),
    ],
    spreads(
      "sluice_store_duration_seconds",
      ({ asks }) => readNamed(asks, "command"),
      ({ asks }) => asks.clear(),
    ),
    spreads(
      "sluice_webhook_attempt_seconds",
      ({ attempts }) => readNamed(attempts, "outcome"),
      ({ attempts }) => attempts.clear(),
    ),
  ]);
  return { metrics, counts };
}

const labels = new WeakMap<object, unknown>();

/** The labels of something that is counted, the same objects each time: a register puts these into text only once. */
function labelsOf<Labels>(counted: object, make: () => Labels): Labels {
  const known = labels.get(counted) as Labels | undefined;
  if (known !== undefined) return known;
  const made = make();
  labels.set(counted, made);
  return made;
}

function readWaits({ buckets }: Counts): SpreadSample[] {
  return [...buckets].flatMap(([bucket, { waits }]) =>
    waits.flatMap((spread, rank) => {
      if (spread === undefined) return [];
      const priority = PRIORITIES[rank]!;
      return { labels: labelsOf(spread, () => ({ bucket, priority })), spread };
    }),
  );
}

function readSlots({ buckets }: Counts): Sample[] {
  return [...buckets].flatMap(([bucket, counts]) => {
    const all = labelsOf(counts, () => SLOT_OUTCOMES.map((outcome) => ({ bucket, outcome })));
    return SLOT_OUTCOMES.map((outcome, at) => ({ labels: all[at]!, value: counts.total(outcome) }));
  });
}

function readNamed(all: ReadonlyMap<string, Spread>, label: string): SpreadSample[] {
  return [...all].map(([name, spread]) => ({
    labels: labelsOf(spread, () => ({ [label]: name })),
    spread,
  }));
}
