/**
 * Converts plain counts to OpenTelemetry metrics when a reader collects them. Draws do no extra
 * work.
 */
import type { Observing } from "../../../core/events/observer.ts";
import { SluicesCounts, Spread, type Counted } from "../counts.ts";
import type { FleetReadings } from "../fleet-facts.ts";
import { FLEET_INSTRUMENTS, INSTRUMENTS, SCOPE, type Instrument } from "./instruments.ts";
import type {
  DataPoint,
  EmptyResource,
  GaugeData,
  HistogramData,
  HistogramValue,
  MetricProducer,
  SumData,
} from "./metric-data.ts";

/** Adds a sluice to a producer, and its fleet if `fleet` is given. */
type Add = (observing: Observing, fleet?: FleetReadings) => void;

const adding = new WeakMap<MetricProducer, Add>();

/**
 * Returns the function that adds a sluice to this producer. Undefined for a producer that was not
 * created here.
 */
export function addingTo(producer: MetricProducer): Add | undefined {
  return adding.get(producer);
}

/**
 * Creates a producer to pass in the `metricProducers` of an OpenTelemetry SDK reader. It reports
 * the sums over all sluices that were passed to {@link instrument} with this producer. Counting
 * starts with the first sluice. Closing a sluice removes nothing from the sums.
 */
export function createMetricProducer(): MetricProducer {
  const sluices = new SluicesCounts();
  let fleet: FleetReadings | undefined;
  const producer: MetricProducer = {
    async collect() {
      const times = { startTime: hrTimeOf(sluices.startedAtMs), endTime: hrTimeOf(Date.now()) };
      const metrics = INSTRUMENTS.map((each) => dataOf(each, sluices.read(each.metric), times));
      const gauges = fleet === undefined ? [] : await gaugesOf(fleet, times);
      const counted = [...metrics, ...gauges].filter(({ dataPoints }) => dataPoints.length > 0);
      const scopeMetrics =
        counted.length === 0 ? [] : [{ scope: { name: SCOPE }, metrics: counted }];
      return { resourceMetrics: { resource: NO_RESOURCE, scopeMetrics }, errors: [] };
    },
  };
  adding.set(producer, (observing, its) => {
    sluices.add(observing);
    fleet = its ?? fleet;
  });
  return producer;
}

const NO_RESOURCE: EmptyResource = {
  attributes: {},
  merge: (other) => other ?? NO_RESOURCE,
  getRawAttributes: () => [],
};

type Times = Pick<DataPoint<unknown>, "startTime" | "endTime">;

function dataOf(
  { name, description, unit, bounds, attributesOf }: Instrument,
  counted: readonly Counted[],
  times: Times,
): HistogramData | SumData {
  const facts = {
    descriptor: { name, description, unit, valueType: 1 },
    aggregationTemporality: 1,
  } as const;
  const dataPoints: DataPoint<number>[] = [];
  const histogramPoints: DataPoint<HistogramValue>[] = [];
  for (const each of counted) {
    const attributes = attributesOf(each.labels);
    if (each instanceof Spread) {
      const { counts, sumMs, total: count } = each;
      const buckets = { boundaries: [...bounds!], counts: [...counts] };
      const value = { buckets, sum: sumMs / 1_000, count };
      histogramPoints.push({ ...times, attributes, value });
    } else if (each.value > 0) {
      // A data point is omitted while its value is zero, as an SDK counter does.
      dataPoints.push({ ...times, attributes, value: each.value });
    }
  }
  return bounds === undefined
    ? { ...facts, dataPointType: 3, isMonotonic: true, dataPoints }
    : { ...facts, dataPointType: 0, dataPoints: histogramPoints };
}

async function gaugesOf(fleet: FleetReadings, times: Times): Promise<GaugeData[]> {
  const gauges = FLEET_INSTRUMENTS.map(async (each): Promise<GaugeData> => {
    const { metric, name, description, unit, attributesOf } = each;
    const samples = await fleet.samples(metric);
    const dataPoints = samples.map(({ labels, value }) => ({
      ...times,
      attributes: attributesOf(labels),
      value,
    }));
    const descriptor = { name, description, unit, valueType: 1 } as const;
    return { descriptor, aggregationTemporality: 1, dataPointType: 2, dataPoints };
  });
  return Promise.all(gauges);
}

function hrTimeOf(ms: number): [number, number] {
  return [Math.floor(ms / 1_000), (ms % 1_000) * 1_000_000];
}
