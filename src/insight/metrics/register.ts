import { InvalidOptionError } from "../../core/errors.ts";

/** Where metrics are kept, as prom-client's `Registry` does. */
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
 * Puts all of these into a register, or none. What is there already stays.
 *
 * @throws {@link InvalidOptionError} when the register has another metric of such a name.
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
