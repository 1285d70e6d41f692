import { InvalidOptionError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import type { Observing } from "../core/events/observer.ts";
import type { InsightStore } from "../core/stores/insight/store.ts";
import type { SteeringLog } from "../core/stores/insight/steering-log.ts";
import type { RulesInUse } from "../rules/apply.ts";
import type { Backend } from "../stores/redis/backend.ts";

/** What other entries of this package need of a sluice. */
export interface SluiceParts {
  readonly prefix: string;
  readonly timeoutMs: number;
  readonly logger: Logger;
  readonly observing: Observing;
  readonly insight: InsightStore;
  readonly steeringLog: SteeringLog;
  /** Those of `createSluice({ rules })`. */
  readonly rules: RulesInUse | undefined;
  /** @throws {@link RedisRequiredError} when the sluice has no Redis. */
  readonly connect: (where: string, queue: string) => ReturnType<Backend["connectQueue"]>;
  /** Says, before it is opened, that the queue of this name is that of a sender of webhooks. */
  readonly noteSender: (queue: string) => void;
  /** Calls back when the sluice closes, before its workers do. */
  readonly onClose: (close: () => Promise<void>) => void;
  /** Whether a worker of it is not closed. */
  readonly hasWorkers: () => boolean;
}

const partsOfSluices = new WeakMap<object, SluiceParts>();

export function keepParts(sluice: object, parts: SluiceParts): void {
  partsOfSluices.set(sluice, parts);
}

/** @throws {@link InvalidOptionError} when it is no sluice. */
export function partsOf(where: string, sluice: unknown): SluiceParts {
  const isObject = typeof sluice === "object" && sluice !== null;
  const parts = isObject ? partsOfSluices.get(sluice) : undefined;
  if (parts !== undefined) return parts;
  const remedy = "give what createSluice() returned";
  throw new InvalidOptionError({ where, option: "sluice", value: sluice, remedy });
}
