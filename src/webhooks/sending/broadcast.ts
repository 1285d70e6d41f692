/** An event for all tenants: one message for each of them, page by page, so that it can go on where it stopped. */
import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import { readOptions } from "../../core/input/options.ts";
import type { Logger } from "../../core/logger.ts";
import type { BroadcastState, WebhookStore } from "../../core/stores/webhooks/store.ts";
import type { Ask } from "../asking.ts";
import { ID, type TenantOf } from "../names.ts";
import { EVENT_TYPE, MESSAGE_ID } from "../signing/sign.ts";
import { wanting, type FanOut } from "./fan-out.ts";
import { bodyOf, dataOf } from "./message.ts";
import { newId, readData } from "./send.ts";

/** What `broadcast` takes. */
export interface BroadcastOptions {
  /** What has happened: `"status.degraded"`. */
  readonly type: string;
  /** What is told of it, up to 256 kB of JSON. */
  readonly data: unknown;
  /** The id of the broadcast, and of its message for each tenant. One that is known already is completed. Defaults to a random one. */
  readonly id?: string | undefined;
  /** To whom it goes, up to 10,000. Defaults to all tenants that have endpoints. */
  readonly tenants?: readonly string[] | undefined;
}

/** A broadcast that is stored, and will be sent. */
export interface SentBroadcast {
  readonly id: string;
  /** False if one of this id was begun before: then what that one says counts. */
  readonly isNew: boolean;
  /** How many tenants get it, and how many endpoints: `{ tenants: 20, endpoints: 31 }`. */
  readonly tenants: number;
  readonly endpoints: number;
}

export interface Broadcasting {
  /**
   * Sends an event to the endpoints of all tenants that want it, or of some tenants; resolves when Redis has all of it. It
   * reads some tenants at a time, whatever their number.
   *
   * @throws {@link InvalidOptionError} when an option can never work, or the data is not JSON, or too large.
   * @throws {@link StoreUnavailableError} when Redis did not confirm it. Call it again with the same `id`, also from another
   * process: it goes on where it stopped, and nothing is doubled.
   */
  broadcast(options: BroadcastOptions): Promise<SentBroadcast>;
}

export interface BroadcastParts {
  readonly store: WebhookStore;
  readonly ask: Ask;
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
    .array(ID, { error: "give a list of tenants, or leave it out for all" })
    .max(MOST_TENANTS, { error: `give at most ${MOST_TENANTS}` })
    .optional(),
});
/** How many tenants are done between two notes of how far it is. */
const PAGE = 64;
/** How many endpoints are read and stored at a time, unless one tenant has more. */
const MOST_AT_ONCE = 500;

/** What a broadcast says, and its data, by which endpoints choose. */
interface ToldToAll {
  readonly id: string;
  readonly type: string;
  readonly body: string;
  readonly data: unknown;
}

export function createBroadcasting(parts: BroadcastParts): Broadcasting {
  const { store, ask, fanOut, tenantOf, isSingle, logger, keepMs } = parts;

  /** How many endpoints get it, of each tenant of a page that has any. */
  async function sendToAll(page: readonly string[], told: ToldToAll): Promise<number[]> {
    const sizes = await Promise.all(page.map((tenant) => ask(() => store.countEndpoints(tenant))));
    const counts: number[] = [];
    for (const group of groupsOf(page, sizes)) {
      counts.push(...(await Promise.all(group.map((tenant) => sendTo(tenant, told)))));
    }
    return counts.filter((count) => count > 0);
  }

  async function sendTo(tenant: string, { id, type, body, data }: ToldToAll): Promise<number> {
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
      const begun = await ask(() => store.beginBroadcast({ id, type, body, named, keepMs }));
      const { isNew } = begun;
      if (begun.isDone) return { id, isNew, tenants: begun.tenants, endpoints: begun.endpoints };
      // What the first call said, and to whom, whoever goes on with it.
      const pageAfter = pagesOf(where, begun.named);
      const told = { id, type: begun.type, body: begun.body };
      const data: unknown = JSON.parse(dataOf(told.type, told.body));
      let state: BroadcastState = begun;
      while (!state.isDone) {
        const { cursor: from } = state;
        const page = await pageAfter(from);
        const reached = await sendToAll(page, { ...told, data });
        state = await ask(() =>
          store.advanceBroadcast({
            id,
            from,
            to: page.at(-1) ?? from,
            isDone: page.length < PAGE,
            tenants: reached.length,
            endpoints: reached.reduce((sum, count) => sum + count, 0),
          }),
        );
      }
      return { id, isNew, tenants: state.tenants, endpoints: state.endpoints };
    },
  };

  function assertMayName(where: string, tenants: readonly string[] | undefined): void {
    if (!isSingle || tenants === undefined) return;
    const remedy = "leave it out: the sender is declared with singleTenant";
    throw new InvalidOptionError({ where, option: "tenants", value: tenants, remedy });
  }

  /** What reads the tenants that come after one. */
  function pagesOf(
    where: string,
    named: readonly string[] | undefined,
  ): (after: string) => Promise<readonly string[]> {
    const listed = isSingle ? [tenantOf(where, undefined)] : named;
    if (listed === undefined) return (after) => ask(() => store.tenants(after, PAGE));
    return async (after) => {
      const begin = listed.findIndex((tenant) => tenant > after);
      return begin === -1 ? [] : listed.slice(begin, begin + PAGE);
    };
  }
}

/** Parts of a page that go together: tenants with few endpoints, or one with many. */
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
