import { InvalidOptionError } from "../../core/errors.ts";

/** Holds metrics, like prom-client's `Registry`. */
export interface MetricsRegister {
  readonly contentType: string;
  metrics(): Promise<string>;
  getSingleMetric(name: string): object | undefined;
  registerMetric(metric: never): void;
  removeSingleMetric(name: string): void;
}

const METHODS = ["metrics", "getSingleMetric", "registerMetric", "removeSingleMetric"] as const;

export function isRegister(given: unknown): given is MetricsRegister {
  if (typeof given !== "object" || given === null) return false;
  const methods = given as Record<string, unknown>;
  return METHODS.every((name) => typeof methods[name] === "function");
}

/**
 * Registers all metrics or none. Metrics of the same kind that are already registered stay.
 *
 * @throws {@link InvalidOptionError} when the register has a different metric with one of these
 * names.
 */
export function registerAll(
  where: string,
  register: MetricsRegister,
  metrics: ReadonlyMap<string, object>,
): void {
  for (const [name, metric] of metrics) {
    const found = register.getSingleMetric(name);
    if (found === undefined || found === metric) continue;
    const remedy = `it has another metric ${name} already: give a register that has none, such as "new Registry()"`;
    throw new InvalidOptionError({ where, option: "register", value: name, remedy });
  }
  for (const metric of metrics.values()) register.registerMetric(metric as never);
}
