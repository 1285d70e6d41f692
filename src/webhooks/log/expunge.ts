import { isWithin, encodeKey } from "../../core/key-path.ts";
import type { ChangeLog } from "../../core/stores/insight/change-log.ts";
import type { WebhookStore } from "../../stores/redis/webhooks/store.ts";
import type { DeliveryQueue } from "../sending/jobs.ts";
import { digestOfTenant, limitsKeyOf, type TenantOf } from "../names.ts";
import { readExpunge, type ExpungeOptions } from "./log-options.ts";

export interface ExpungeParts {
  readonly store: WebhookStore;
  readonly queue: DeliveryQueue;
  readonly tenantOf: TenantOf;
  /** The log of operators' changes. */
  readonly log: ChangeLog;
}

/** The number of entries that are read and removed at once. */
const AT_ONCE = 500;

export function createExpunge({
  store,
  queue,
  tenantOf,
  log: changes,
}: ExpungeParts): (options: ExpungeOptions) => Promise<number> {
  /**
   * Removes all jobs of a tenant. Running jobs end by themselves. The log does not record this,
   * because the entry would name the tenant.
   */
  async function removeJobs(tenant: string): Promise<void> {
    const found: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await queue.jobs({ key: tenant, cursor, limit: AT_ONCE });
      found.push(...page.jobs.map(({ id }) => id));
      ({ cursor } = page);
    } while (cursor !== undefined);
    while (found.length > 0) {
      await Promise.all(found.splice(0, AT_ONCE).map((id) => queue.remove(id)));
    }
  }

  async function endPauses(tenant: string): Promise<void> {
    for (const { key } of await queue.paused()) {
      if (key !== undefined && isWithin(encodeKey(key), tenant)) await queue.resume({ key });
    }
  }

  return async (given) => {
    const where = "expunge()";
    const { message, tenant: named } = readExpunge(where, given);
    const tenant = tenantOf(where, named);
    if (message !== undefined) {
      return (await store.expunge({ tenant, message })).removed;
    }
    // Remove the endpoints first. After that nothing more is sent, and pending attempts end by
    // themselves.
    for (let after = ""; ;) {
      const ids = await store.ids(tenant, after, AT_ONCE);
      for (const endpoint of ids) {
        const name = { tenant, endpoint };
        await store.remove({ ...name, key: limitsKeyOf(name) });
      }
      if (ids.length < AT_ONCE) break;
      after = ids.at(-1)!;
    }
    let total = 0;
    for (let isDone = false; !isDone;) {
      const expunged = await store.expunge({ tenant });
      total += expunged.removed;
      ({ isDone } = expunged);
    }
    await store.setLimits({ key: limitsKeyOf({ tenant }) });
    await removeJobs(tenant);
    await endPauses(tenant);
    await store.forgetLimits({ tenant, digest: digestOfTenant(tenant) });
    await store.forgetEvents(tenant);
    // This step must be the last, because the steps above also add to this log.
    await changes.forget({ queue: queue.name, tenant });
    return total;
  };
}
