import { reasonOf } from "../../core/describe.ts";
import type { Logger } from "../../core/logger.ts";
import type { LimitsOptions } from "../../core/policy/limit-makers.ts";
import type { WebhookStore } from "../../core/stores/webhooks/store.ts";

/** The limits that endpoints have of their own, as far as this process knows them. */
export interface OwnLimits {
  /** The limits of an endpoint, by the key of its jobs. */
  readonly of: (key: string) => LimitsOptions;
  /** Resolves once the limits are known; they are kept up to date until `stop()`, and `onChange` hears of each change. */
  follow(logger: Logger, onChange: (key: string) => Promise<unknown>): Promise<void>;
  stop(): void;
}

/** New limits hold within a second. */
const LOOK_EVERY_MS = 1_000;

export function createOwnLimits(
  store: Pick<WebhookStore, "limitsSince">,
  others: LimitsOptions,
): OwnLimits {
  const own = new Map<string, LimitsOptions>();
  /** None was read yet. */
  let version = -1;
  let isStopped = false;
  let timer: NodeJS.Timeout | undefined;
  let following: Promise<void> | undefined;

  async function look(onChange: (key: string) => Promise<unknown>): Promise<void> {
    const isFirst = version < 0;
    const changed = await store.limitsSince(Math.max(0, version));
    version = changed.version;
    for (const [key, limits] of changed.limits) {
      if (limits === undefined) own.delete(key);
      else own.set(key, { ...others, ...(JSON.parse(limits) as LimitsOptions) });
    }
    if (isFirst) return;
    for (const key of changed.limits.keys()) await onChange(key);
  }

  return {
    of: (key) => own.get(key) ?? others,
    follow(logger, onChange) {
      return (following ??= new Promise((resolve) => {
        const again = (): void => {
          if (!isStopped) timer = setTimeout(lookOnce, LOOK_EVERY_MS);
        };
        const lookOnce = (): void => {
          look(onChange).then(
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
