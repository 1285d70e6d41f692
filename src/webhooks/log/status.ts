import { formatRate, parseRate, type RateInput } from "../../core/limits/rate.ts";
import type { RuledPolicy } from "../../core/stores/insight/rules.ts";
import type { EndpointName } from "../../stores/redis/scripts/webhooks/webhooks.ts";
import type { WebhookStore } from "../../stores/redis/webhooks/store.ts";
import { encodeKey } from "../../core/key-path.ts";
import { readAttempt, type Attempt } from "../delivery/attempt-entry.ts";
import { levelLimits, rulesOf, type LevelLimits, type SenderLimits } from "../delivery/limits.ts";
import { readEndpointRef, type Ceiling, type EndpointRef } from "../endpoints/endpoint-options.ts";
import { keyOf, type TenantOf } from "../names.ts";

/** The state of an endpoint over all processes. */
export interface EndpointStatus {
  /**
   * The state of the endpoint:
   *
   * - `"disabled"`: nothing is sent to it.
   * - `"left alone"`: paused, because its breaker is open or it requested a pause.
   * - `"failing"`: no success since `failingSinceMs`.
   * - `"well"`: none of these.
   */
  readonly state: "well" | "failing" | "left alone" | "disabled";
  /** Ms until the pause ends; 0 if the endpoint is not paused. */
  readonly pausedForMs: number;
  /** @deprecated Use `pausedForMs`, which has the same value. */
  readonly leftAloneForMs: number;
  /**
   * When the current series of failures began, in ms since 1970. Undefined if the last relevant
   * attempt succeeded.
   */
  readonly failingSinceMs: number | undefined;
  /** The number of failures in a row. */
  readonly failures: number;
  /** The number of pending messages that are due. Later retries are not included. */
  readonly waiting: number;
  /** The number of attempts that ended in the last minute. The count stops at 1,000. */
  readonly attemptsInLastMinute: number;
  /** The newest attempt; undefined if none is kept. */
  readonly lastAttempt: Attempt | undefined;
  /** The newest failure among the last ten attempts; undefined if there is none. */
  readonly lastFailure: Attempt | undefined;
  /**
   * The limits of the endpoint and of its tenant. A process without the sender's code omits the
   * limits from that code.
   */
  readonly limits: readonly EndpointLimit[];
}

export interface EndpointLimit {
  /**
   * The kind of limit: `"rate"` or `"concurrency"` of the endpoint, `"tenant.rate"` or
   * `"tenant.concurrency"` of its tenant.
   */
  readonly name: string;
  /** The value of the limit: `"5/s"`, or `4` for 4 simultaneous calls. */
  readonly value: string | number;
  /**
   * The source of the limit: `"own"` if it was set for this endpoint or tenant, `"rules"` for a
   * rules file, `"code"` for the sender's code.
   */
  readonly setBy: "own" | "rules" | "code";
}

export interface EndpointStatuses {
  /**
   * Returns the state of an endpoint. Returns undefined if the tenant has no endpoint with this id.
   * Rejects with StoreUnavailableError when Redis is unreachable.
   */
  status(endpoint: EndpointRef): Promise<EndpointStatus | undefined>;
}

function limitsIn(whose: string, levels: LevelLimits): EndpointLimit[] {
  return (["rate", "concurrency"] as const).flatMap((name) => {
    const setBy = (["own", "rules", "code"] as const).find((by) => levels[by][name] !== undefined);
    if (setBy === undefined) return [];
    const given = levels[setBy][name]!;
    const value = name === "rate" ? formatRate(parseRate("status()", given as RateInput)) : given;
    return [{ name: `${whose}${name}`, value: value as string | number, setBy }];
  });
}

const LOOKED_BACK = 10;

export function createEndpointStatuses(parts: {
  readonly store: Pick<WebhookStore, "endpoint" | "look" | "limits">;
  readonly tenantOf: TenantOf;
  readonly code: SenderLimits;
  readonly readRules: () => Promise<RuledPolicy | undefined>;
}): EndpointStatuses {
  const { store, tenantOf, code } = parts;

  async function limitsOf({ tenant, endpoint }: EndpointName): Promise<readonly EndpointLimit[]> {
    const paths = [[tenant], [tenant, endpoint]];
    const [ruled, ...texts] = await Promise.all([
      parts.readRules(),
      ...paths.map((path) => store.limits(encodeKey(path))),
    ]);
    const rules = rulesOf(ruled);
    return paths.flatMap((path, at) => {
      const text = texts[at];
      const own = text === undefined ? {} : (JSON.parse(text) as Ceiling);
      const levels = levelLimits(path, code, { rules, own });
      return limitsIn(at === 0 ? "tenant." : "", levels);
    });
  }
  return {
    async status(given) {
      const where = "status()";
      const { tenant, id } = readEndpointRef(where, given);
      const name = { tenant: tenantOf(where, tenant), endpoint: id };
      const key = encodeKey(keyOf(name));
      const [{ record, disabled }, limits, seen] = await Promise.all([
        store.endpoint(name),
        limitsOf(name),
        store.look({ ...name, key, most: LOOKED_BACK }),
      ]);
      if (record === undefined) return undefined;
      const { leftAloneForMs: pausedForMs, failingSinceMs, failures, waiting } = seen;
      const attempts = seen.attempts.flatMap(({ message, entry }) =>
        entry === undefined ? [] : [readAttempt(message, entry)],
      );
      const healthy = failingSinceMs > 0 ? "failing" : "well";
      const enabled = pausedForMs > 0 ? "left alone" : healthy;
      return {
        state: disabled === undefined ? enabled : "disabled",
        pausedForMs,
        leftAloneForMs: pausedForMs,
        failingSinceMs: failingSinceMs === 0 ? undefined : failingSinceMs,
        failures,
        waiting,
        attemptsInLastMinute: seen.inLastMinute,
        limits,
        lastAttempt: attempts[0],
        lastFailure: attempts.find(({ outcome }) => outcome !== "success"),
      };
    },
  };
}
