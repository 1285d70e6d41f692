/** The metrics of this process's own calls, for one sluice or for several that share a register. */
import { Registry } from "prom-client";
import * as z from "zod";
import { PROCESS_METRICS, type ProcessMetric } from "../../core/events/metrics.ts";
import type { Observing } from "../../core/events/observer.ts";
import { readOptions } from "../../core/input/options.ts";
import { SluicesCounts } from "./counts.ts";
import { exportMetric } from "./export-metric.ts";
import { isRegister, registerAll, type MetricsRegister } from "./register.ts";

export interface MetricsOptions {
  /**
   * The register for the metrics: a prom-client `Registry`, such as prom-client's global
   * `register`. Defaults to a separate register for this sluice.
   */
  readonly register?: MetricsRegister | undefined;
}

export interface Metrics {
  /** The register from the options, or the sluice's separate register. */
  readonly register: MetricsRegister;
  /** The content type of `text()`: `"text/plain; version=0.0.4; charset=utf-8"`. */
  readonly contentType: string;
  /** All metrics in the register, in Prometheus's format. */
  text(): Promise<string>;
}

/** @internal */
export const REGISTER: z.ZodType<MetricsRegister> = z.custom<MetricsRegister>(isRegister, {
  error: 'give a Registry of prom-client, such as its "register", or omit the option',
});
const OPTIONS = z.strictObject({ register: REGISTER.optional() });

/** The metrics in a register, and the counts behind them. */
interface RegisteredCounts {
  readonly metrics: ReadonlyMap<string, object>;
  readonly counts: SluicesCounts;
}

const countsByRegister = new WeakMap<MetricsRegister, RegisteredCounts>();
const ownRegisters = new WeakMap<Observing, MetricsRegister>();

/**
 * Exports the metrics of a sluice. Counting starts with the first call of this function.
 *
 * @throws {@link InvalidOptionError} when `register` is not a register, or already has different
 * metrics with these names.
 */
export function openMetrics(observing: Observing, given: MetricsOptions = {}): Metrics {
  const where = "metrics()";
  const { register: asked } = readOptions(where, OPTIONS, given);
  const own = ownRegisters.get(observing) ?? (new Registry() as MetricsRegister);
  const register = asked ?? own;
  const registered = countsByRegister.get(register) ?? createRegisteredCounts();
  registerAll(where, register, registered.metrics);
  countsByRegister.set(register, registered);
  ownRegisters.set(observing, own);
  registered.counts.add(observing);
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

function createRegisteredCounts(): RegisteredCounts {
  const counts = new SluicesCounts();
  const metrics = Object.entries(PROCESS_METRICS).map(([key, facts]): [string, object] => {
    const name = key as ProcessMetric;
    const source = { read: () => counts.read(name), reset: () => counts.reset(name) };
    return [name, exportMetric(name, facts, source)];
  });
  return { metrics: new Map(metrics), counts };
}
