/**
 * Sends an event to all tenants, as one message per tenant. A broadcast works page by page, so that
 * it can continue where it stopped.
 */
import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import { readOptions } from "../../core/input/options.ts";
import type { Logger } from "../../core/logger.ts";
import type { BroadcastState } from "../../stores/redis/scripts/webhooks/webhooks.ts";
import type { WebhookStore } from "../../stores/redis/webhooks/store.ts";
import { ID, type TenantOf } from "../names.ts";
import { EVENT_TYPE, MESSAGE_ID } from "../signing/sign.ts";
import { wanting, type FanOut } from "./fan-out.ts";
import { bodyOf, dataOf } from "./message.ts";
import { newId, readData } from "./send.ts";

/** The options of `broadcast`. */
export interface BroadcastOptions {
  /** The event's type: `"status.degraded"`. */
  readonly type: string;
  /** The event's data, up to 256 kB of JSON. */
  readonly data: unknown;
  /**
   * The id of the broadcast, and of its message for each tenant. A call with a known id completes
   * that broadcast. Defaults to a random id.
   */
  readonly id?: string | undefined;
  /** The tenants that receive the event, up to 10,000. Defaults to all tenants with endpoints. */
  readonly tenants?: readonly string[] | undefined;
}

/** A stored broadcast. */
export interface SentBroadcast {
  readonly id: string;
  /**
   * False if a broadcast with this id was already started. The content of that broadcast then
   * applies.
   */
  readonly isNew: boolean;
  /**
   * The numbers of tenants and endpoints that receive the event: `{ tenants: 20, endpoints: 31 }`.
   */
  readonly tenants: number;
  readonly endpoints: number;
}

export interface Broadcasting {
  /**
   * Sends an event to the endpoints of all tenants, or of the named tenants, that subscribe to the
   * event. Resolves when Redis has stored all messages. Tenants are read page by page.
   *
   * @throws {@link InvalidOptionError} when an option can never work, or the data is not JSON, or
   * too large.
   * @throws {@link StoreUnavailableError} when Redis did not confirm it. Call it again with the
   * same `id`, in any process. It continues where it stopped and sends nothing twice.
   */
  broadcast(options: BroadcastOptions): Promise<SentBroadcast>;
}

export interface BroadcastParts {
  readonly store: WebhookStore;
  readonly fanOut: FanOut;
  readonly tenantOf: TenantOf;
  readonly isSingle: boolean;
  readonly logger: Logger;
  readonly keepMs: number;
}

const MOST_TENANTS = 10_000;
const OPTIONS = z.strictObject({
  type: EVENT_TYPE,
  data: z.unknown(),
  id: MESSAGE_ID.optional(),
  tenants: z
    .array(ID, { error: "give a list of tenants, or omit the option for all" })
    .max(MOST_TENANTS, { error: `give at most ${MOST_TENANTS}` })
    .optional(),
});
/** The number of tenants that are handled before the progress is stored again. */
const PAGE = 64;
/** The most endpoints that are read and stored at once, unless one tenant has more. */
const MOST_AT_ONCE = 500;

/** The content of a broadcast. Endpoints filter by its data. */
interface BroadcastContent {
  readonly id: string;
  readonly type: string;
  readonly body: string;
  readonly data: unknown;
}

export function createBroadcasting(parts: BroadcastParts): Broadcasting {
  const { store, fanOut, tenantOf, isSingle, logger, keepMs } = parts;

  /**
   * Sends to the tenants of a page. Returns the number of endpoints for each tenant that has any.
   */
  async function sendToAll(page: readonly string[], content: BroadcastContent): Promise<number[]> {
    const sizes = await Promise.all(page.map((tenant) => store.countEndpoints(tenant)));
    const counts: number[] = [];
    for (const group of groupsOf(page, sizes)) {
      counts.push(...(await Promise.all(group.map((tenant) => sendTo(tenant, content)))));
    }
    return counts.filter((count) => count > 0);
  }

  async function sendTo(
    tenant: string,
    { id, type, body, data }: BroadcastContent,
  ): Promise<number> {
    const targets = wanting(await fanOut.readEndpoints(tenant), type, data);
    if (targets.length === 0) return 0;
    return (await fanOut.store({ tenant, id, type, body }, targets, "send")).endpoints.length;
  }

  return {
    async broadcast(given) {
      const where = "broadcast()";
      const { type, id = newId(), tenants } = readOptions(where, OPTIONS, given);
      const { json } = readData(where, (given as BroadcastOptions).data, { type, logger });
      assertMayName(where, tenants);
      const named = tenants && [...new Set(tenants)].sort();
      const body = bodyOf(type, Date.now(), json);
      const begun = await store.beginBroadcast({ id, type, body, named, keepMs });
      const { isNew } = begun;
      if (begun.isDone) return { id, isNew, tenants: begun.tenants, endpoints: begun.endpoints };
      // The stored content and tenants apply, whichever process continues the broadcast.
      const pageAfter = pagesOf(where, begun.named);
      const content = { id, type: begun.type, body: begun.body };
      const data: unknown = JSON.parse(dataOf(content.type, content.body));
      let state: BroadcastState = begun;
      while (!state.isDone) {
        const { cursor: from } = state;
        const page = await pageAfter(from);
        const reached = await sendToAll(page, { ...content, data });
        state = await store.advanceBroadcast({
          id,
          from,
          to: page.at(-1) ?? from,
          isDone: page.length < PAGE,
          tenants: reached.length,
          endpoints: reached.reduce((sum, count) => sum + count, 0),
        });
      }
      return { id, isNew, tenants: state.tenants, endpoints: state.endpoints };
    },
  };

  function assertMayName(where: string, tenants: readonly string[] | undefined): void {
    if (!isSingle || tenants === undefined) return;
    const remedy = "leave it out: the sender is declared with singleTenant";
    throw new InvalidOptionError({ where, option: "tenants", value: tenants, remedy });
  }

  /** Returns a function that reads the next tenants after a given tenant. */
  function pagesOf(
    where: string,
    named: readonly string[] | undefined,
  ): (after: string) => Promise<readonly string[]> {
    const listed = isSingle ? [tenantOf(where, undefined)] : named;
    if (listed === undefined) return (after) => store.tenants(after, PAGE);
    return async (after) => {
      const begin = listed.findIndex((tenant) => tenant > after);
      return begin === -1 ? [] : listed.slice(begin, begin + PAGE);
    };
  }
}

/**
 * Splits the tenants of a page into groups: several tenants with few endpoints, or one tenant with
 * many.
 */
function groupsOf(page: readonly string[], counts: readonly number[]): string[][] {
  const groups: string[][] = [];
  let room = 0;
  for (const [at, tenant] of page.entries()) {
    const count = counts[at]!;
    if (groups.length === 0 || count > room) {
      groups.push([]);
      room = MOST_AT_ONCE;
    }
    groups.at(-1)!.push(tenant);
    room -= count;
  }
  return groups;
}
