/**
 * Metrics of prom-client that read their values at each scrape, from counts that are kept
 * elsewhere.
 */
import { Counter, Gauge, Histogram } from "prom-client";
import type { MetricFacts } from "../../core/events/metrics.ts";
import { Spread, type Labels, type Sample } from "./counts.ts";

export interface Source {
  /** Reads the current values. */
  read(): Promise<readonly (Sample | Spread)[]> | readonly (Sample | Spread)[];
  /** Resets the counts of this process to zero. */
  reset(): void;
}

/**
 * A value in prom-client's format. prom-client caches the text of a labels object, so pass the same
 * object each time.
 */
interface Written {
  readonly labels: Labels | { readonly le: number | "+Inf" };
  readonly sharedLabels: Labels;
  readonly value: number;
  readonly metricName?: string;
}

const NONE: Labels = {};

const CLASSES = { counter: Counter, gauge: Gauge, histogram: Histogram } as const;

export function exportMetric(name: string, facts: MetricFacts, source: Source): object {
  const { type, help, labels } = facts;
  const metric = new CLASSES[type]({ name, help, labelNames: [...labels], registers: [] });
  const names = { bucket: `${name}_bucket`, sum: `${name}_sum`, count: `${name}_count` };
  const write = async (): Promise<Written[]> =>
    (await source.read()).flatMap((sample) =>
      sample instanceof Spread
        ? writeSpread(names, sample)
        : { labels: NONE, sharedLabels: sample.labels, value: sample.value },
    );
  return readFrom(metric, write, source);
}

function writeSpread(
  names: Readonly<Record<"bucket" | "sum" | "count", string>>,
  { labels, boundsMs, counts, sumMs }: Spread,
): Written[] {
  let count = 0;
  const written: Written[] = boundsMs.map((boundMs, part) => {
    count += counts[part]!;
    const le = boundMs / 1_000;
    return { metricName: names.bucket, labels: { le }, sharedLabels: labels, value: count };
  });
  count += counts.at(-1)!;
  written.push(
    { metricName: names.bucket, labels: { le: "+Inf" }, sharedLabels: labels, value: count },
    { metricName: names.sum, labels: NONE, sharedLabels: labels, value: sumMs / 1_000 },
    { metricName: names.count, labels: NONE, sharedLabels: labels, value: count },
  );
  return written;
}

/**
 * Makes a metric read its values from our counts. prom-client's registers call the undocumented
 * `getForPromString` to write a histogram, and fall back to `get`. Checked with prom-client 15.1.3.
 */
function readFrom(
  metric: Counter | Gauge | Histogram,
  write: () => Promise<Written[]>,
  { reset }: Pick<Source, "reset">,
): object {
  const { help, aggregator } = metric as unknown as { help: string; aggregator: string };
  const describe = (): object => {
    // An OpenMetrics register changes the name of a counter.
    const { name, type } = metric as unknown as { name: string; type: string };
    return { name, help, type, aggregator };
  };
  return Object.assign(metric, {
    getForPromString: async () => ({ ...describe(), values: await write() }),
    async get() {
      const written = await write();
      const values = written.map(({ labels, sharedLabels, ...rest }) => ({
        ...rest,
        labels: { ...sharedLabels, ...labels },
      }));
      return { ...describe(), values };
    },
    reset,
  });
}
