/** The metrics of this process's own calls, of one sluice or of several that share a register. */
import { Registry } from "prom-client";
import * as z from "zod";
import { PROCESS_METRICS, type ProcessMetric } from "../../core/events/metrics.ts";
import type { Observing } from "../../core/events/observer.ts";
import { readOptions } from "../../core/input/options.ts";
import { SluicesCounts } from "./counts.ts";
import { exportMetric } from "./exported.ts";
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
  readonly metrics: ReadonlyMap<string, object>;
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
  const metrics = Object.entries(PROCESS_METRICS).map(([key, facts]): [string, object] => {
    const name = key as ProcessMetric;
    const source = { read: () => counts.read(name), reset: () => counts.reset(name) };
    return [name, exportMetric(name, facts, source)];
  });
  return { metrics: new Map(metrics), counts };
}
