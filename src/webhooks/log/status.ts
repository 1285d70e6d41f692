import { formatRate, parseRate, type RateInput } from "../../core/limits/rate.ts";
import type { RuledPolicy } from "../../core/stores/insight/rules.ts";
import type { EndpointName, WebhookStore } from "../../core/stores/webhooks/store.ts";
import { textOfKey } from "../../core/key-path.ts";
import type { Ask } from "../asking.ts";
import { readAttempt, type Attempt } from "../delivery/attempt-entry.ts";
import { levelLimits, rulesOf, type LevelLimits, type SenderLimits } from "../delivery/limits.ts";
import { readEndpointRef, type Ceiling, type EndpointRef } from "../endpoints/endpoint-options.ts";
import { keyOf, type TenantOf } from "../names.ts";

/** How an endpoint is, over all processes. */
export interface EndpointStatus {
  /**
   * `"disabled"`; `"left alone"` for a while, since its breaker is open or it asked for that; `"failing"` since its last
   * success; else `"well"`.
   */
  readonly state: "well" | "failing" | "left alone" | "disabled";
  /** For how many ms nothing is sent to it; 0 unless it is left alone. */
  readonly leftAloneForMs: number;
  /** Since when every attempt has failed, in ms since 1970; undefined if the last one that says something was well. */
  readonly failingSinceMs: number | undefined;
  /** How many attempts in a row have failed. */
  readonly failures: number;
  /** How many messages are due and wait for it. Later attempts that are not due yet are not among them. */
  readonly waiting: number;
  /** How many attempts ended in the last minute; 1,000 at most are known. */
  readonly attemptsInLastMinute: number;
  /** The newest attempt; undefined if none is kept. */
  readonly lastAttempt: Attempt | undefined;
  /** The newest failure among the last ten attempts; undefined if none of them failed. */
  readonly lastFailure: Attempt | undefined;
  /** Its limits and those of its tenant. A process that has not the sender's code leaves out what only that says. */
  readonly limits: readonly EndpointLimit[];
}

export interface EndpointLimit {
  /** `"rate"`, `"concurrency"`, or of its tenant `"tenant.rate"`, `"tenant.concurrency"`. */
  readonly name: string;
  /** `"5/s"`, or `4` calls at once. */
  readonly value: string | number;
  /** Whether it was set for this endpoint or tenant alone, by a rules file, or by the code of the sender. */
  readonly setBy: "own" | "rules" | "code";
}

export interface EndpointStatuses {
  /** How an endpoint is; undefined if the tenant has none of this id. Rejects with StoreUnavailableError when Redis is away. */
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
  readonly ask: Ask;
  readonly tenantOf: TenantOf;
  readonly code: SenderLimits;
  readonly readRules: () => Promise<RuledPolicy | undefined>;
}): EndpointStatuses {
  const { store, ask, tenantOf, code } = parts;

  async function limitsOf({ tenant, endpoint }: EndpointName): Promise<readonly EndpointLimit[]> {
    const paths = [[tenant], [tenant, endpoint]];
    const [ruled, ...texts] = await Promise.all([
      ask(() => parts.readRules()),
      ...paths.map((path) => ask(() => store.limits(textOfKey(path)))),
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
      const key = textOfKey(keyOf(name));
      const [{ record, disabled }, limits, seen] = await Promise.all([
        ask(() => store.endpoint(name)),
        limitsOf(name),
        ask(() => store.look(name, key, LOOKED_BACK)),
      ]);
      if (record === undefined) return undefined;
      const { leftAloneForMs, failingSinceMs, failures, waiting } = seen;
      const attempts = seen.attempts.flatMap(({ message, entry }) =>
        entry === undefined ? [] : [readAttempt(message, entry)],
      );
      const healthy = failingSinceMs > 0 ? "failing" : "well";
      const enabled = leftAloneForMs > 0 ? "left alone" : healthy;
      return {
        state: disabled === undefined ? enabled : "disabled",
        leftAloneForMs,
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
