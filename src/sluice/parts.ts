import type { Logger } from "../core/logger.ts";
import type { Observing } from "../core/events/observer.ts";
import type { InsightStore } from "../core/stores/insight/store.ts";
import type { RulesInUse } from "../rules/apply.ts";
import type { Backend } from "../redis/backend.ts";

/** What other entries of this package need of a sluice. */
export interface SluiceParts {
  readonly prefix: string;
  readonly timeoutMs: number;
  readonly logger: Logger;
  readonly observing: Observing;
  readonly insight: InsightStore;
  /** Those of `createSluice({ rules })`. */
  readonly rules: RulesInUse | undefined;
  /** @throws {@link RedisRequiredError} when the sluice has no Redis. */
  readonly connect: (where: string, queue: string) => ReturnType<Backend["connectQueue"]>;
  /** Calls back when the sluice closes, before its workers do. */
  readonly onClose: (close: () => Promise<void>) => void;
}

const partsOfSluices = new WeakMap<object, SluiceParts>();

export function keepParts(sluice: object, parts: SluiceParts): void {
  partsOfSluices.set(sluice, parts);
}

/** The parts of a sluice that is open; undefined for what is none. */
export function partsOf(sluice: unknown): SluiceParts | undefined {
  return typeof sluice === "object" && sluice !== null ? partsOfSluices.get(sluice) : undefined;
}
