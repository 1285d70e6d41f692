import { refuseExtra, type Arities } from "../../core/input/arguments.ts";
import type { WebhookStore } from "../../core/stores/webhooks/store.ts";
import { textOfKey } from "../../core/key-path.ts";
import type { Ask } from "../asking.ts";
import { readAttempt, type Attempt } from "../delivery/attempt-entry.ts";
import { readEndpointRef, type EndpointRef } from "../endpoints/endpoint-options.ts";
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
}

export interface EndpointStatuses {
  /** How an endpoint is; undefined if the tenant has none of this id. Rejects with StoreUnavailableError when Redis is away. */
  status(endpoint: EndpointRef): Promise<EndpointStatus | undefined>;
}

const LOOKED_BACK = 10;
const ARITIES: Arities<EndpointStatuses> = { status: 1 };

export function createEndpointStatuses(parts: {
  readonly store: Pick<WebhookStore, "endpoint" | "look">;
  readonly ask: Ask;
  readonly tenantOf: TenantOf;
}): EndpointStatuses {
  const { store, ask, tenantOf } = parts;
  const statuses: EndpointStatuses = {
    async status(given) {
      const where = "status()";
      const { tenant, id } = readEndpointRef(where, given);
      const name = { tenant: tenantOf(where, tenant), endpoint: id };
      const key = textOfKey(keyOf(name));
      const [{ record, disabled }, seen] = await Promise.all([
        ask(() => store.endpoint(name)),
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
        lastAttempt: attempts[0],
        lastFailure: attempts.find(({ outcome }) => outcome !== "success"),
      };
    },
  };
  return refuseExtra(statuses, ARITIES);
}
