import { reasonOf } from "../../core/describe.ts";
import { keyOfText, levelsOfText, textOfKey, type Key } from "../../core/key-path.ts";
import type { Logger } from "../../core/logger.ts";
import type { LimitsOptions } from "../../core/policy/limit-makers.ts";
import type { WebhookStore } from "../../core/stores/webhooks/store.ts";
import { withinCeiling, type Ceiling } from "../endpoints/endpoint-options.ts";

/** The limits that tenants and endpoints have of their own, as far as this process knows them. */
export interface OwnLimits {
  /** The limits by level: of tenants, and of their endpoints. */
  readonly perKey: readonly ((path: readonly string[]) => LimitsOptions)[];
  /** Resolves once the limits are known; they are kept up to date until `stop()`, and listeners hear of each change. */
  follow(logger: Logger, listeners: LimitsListeners): Promise<void>;
  stop(): void;
}

interface LimitsListeners {
  /** The limits of a key are others. */
  readonly onChange: (key: Key) => Promise<unknown>;
  /** What a key was made to wait for is to end: a process without the sender's code asked for it. */
  readonly onWake: (key: Key) => Promise<unknown>;
}

/**
 * Stands for no limits where there were some, until the process ends: what waits for them hears of a change of limits, and
 * not of their end.
 */
const LIFTED: LimitsOptions = { rate: "1000000/s" };
/** New limits hold within a second. */
const LOOK_EVERY_MS = 1_000;

export function createOwnLimits(
  store: Pick<WebhookStore, "limitsSince">,
  others: {
    readonly perTenant: LimitsOptions;
    readonly perEndpoint: LimitsOptions;
    /** The most that an endpoint may have. */
    readonly ceiling: Ceiling;
  },
): OwnLimits {
  const levels = [others.perTenant, others.perEndpoint];
  /** By the texts of paths. */
  const own = new Map<string, LimitsOptions>();
  /** None was read yet. */
  let version = -1;
  let isStopped = false;
  let timer: NodeJS.Timeout | undefined;
  let following: Promise<void> | undefined;

  /** Whether nothing limits a key that has no limits of its own. */
  function isUnlimited(text: string): boolean {
    return Object.keys(levels[levelsOfText(text) - 1]!).length === 0;
  }

  /** Limits as they are stored; what the owner of an endpoint has set holds as far as the ceiling of now. */
  function readLimits(text: string, limits: string): LimitsOptions {
    const read = JSON.parse(limits) as Ceiling;
    return levelsOfText(text) === 1 ? read : withinCeiling(read, others.ceiling);
  }

  async function look({ onChange, onWake }: LimitsListeners): Promise<void> {
    const isFirst = version < 0;
    const changed = await store.limitsSince(Math.max(0, version));
    if (changed.version < version) own.clear();
    for (const [text, limits] of changed.limits) {
      if (limits !== undefined) own.set(text, readLimits(text, limits));
      else if (isUnlimited(text)) own.set(text, LIFTED);
      else own.delete(text);
    }
    if (!isFirst) for (const text of changed.limits.keys()) await onChange(keyOfText(text));
    if (!isFirst) for (const text of changed.woken) await onWake(keyOfText(text));
    version = changed.version;
  }

  return {
    perKey: levels.map((limits) => (path) => {
      const given = own.get(textOfKey(path));
      return given === undefined ? limits : { ...limits, ...given };
    }),
    follow(logger, listeners) {
      return (following ??= new Promise((resolve) => {
        const again = (): void => {
          if (!isStopped) timer = setTimeout(lookOnce, LOOK_EVERY_MS);
        };
        const lookOnce = (): void => {
          look(listeners).then(
            () => {
              resolve();
              again();
            },
            (error: unknown) => {
              const reason = reasonOf(error);
              if (!isStopped) {
                logger.warn({ reason }, `The limits of endpoints could not be read: ${reason}`);
              }
              again();
            },
          );
        };
        lookOnce();
      }));
    },
    stop() {
      isStopped = true;
      clearTimeout(timer);
    },
  };
}
