import type { CodecError } from "../../core/errors.ts";
import { assertArgumentCount } from "../../core/input/arguments.ts";
import { filterFacts } from "../../core/stores/insight/changes.ts";
import { EndpointMissingError, MessageMissingError } from "../errors.ts";
import type { EndpointName, MessageCopy } from "../../stores/redis/scripts/webhooks/webhooks.ts";
import type { LoggedMessage } from "../../stores/redis/webhooks/store.ts";
import { readRecord, type EndpointRecord } from "../endpoints/record.ts";
import { matchesType } from "../endpoints/event-filter.ts";
import { newSeries, storeFirst, storeStep, type DeliveryJob } from "../sending/jobs.ts";
import { dataOf } from "../sending/message.ts";
import { readAttempt, type Attempt } from "../delivery/attempt-entry.ts";
import { createExpunge, type ExpungeParts } from "./expunge.ts";
import {
  cursorAfter,
  readListAttempts,
  readListMessages,
  readMessageRef,
  readRecover,
  readReplay,
  spanOf,
  type ExpungeOptions,
  type ListAttempts,
  type ListMessages,
  type MessageRef,
  type RecoverOptions,
  type ReplayOptions,
} from "./log-options.ts";

/** A message, and its state at each endpoint. */
export interface Message {
  readonly id: string;
  readonly type: string;
  /** When it was sent, in ms since 1970. */
  readonly atMs: number;
  /** The data of the event. Undefined if this process cannot decode it: `unreadable` says why. */
  readonly data: unknown;
  /** Why this process cannot decode the data. Undefined if it can. */
  readonly unreadable?: CodecError | undefined;
  /** The message's state at each endpoint, by endpoint id. */
  readonly endpoints: Readonly<Record<string, MessageState>>;
}

/**
 * The state of a message at an endpoint:
 *
 * - `"waiting"`: an attempt is pending.
 * - `"delivered"`: the endpoint accepted the message.
 * - `"failed"`: the message is not retried, but can be replayed.
 * - `"removed"`: the endpoint was removed before the delivery.
 */
export type MessageState = "waiting" | "delivered" | "failed" | "removed";

/** A page of a list, the newest entry first. */
export interface LogPage<Entry> {
  readonly entries: readonly Entry[];
  /** The cursor of the next page; undefined on the last page. */
  readonly cursor: string | undefined;
}

/**
 * The log of a sender. A tenant cannot see other tenants' entries. All methods reject with
 * StoreUnavailableError when Redis is unreachable.
 */
export interface WebhookLog {
  readonly messages: {
    /**
     * Returns a message. Returns undefined if the tenant has no message with this id, or the
     * message has expired.
     */
    get(message: MessageRef): Promise<Message | undefined>;
    /**
     * Returns a page of the tenant's messages, the newest first. A page has fewer than `limit`
     * messages if these would exceed 8 MB.
     */
    list(options?: ListMessages): Promise<LogPage<Message>>;
  };
  readonly attempts: {
    /**
     * Returns attempts: all attempts of one message, on one page, or a page of the attempts at an
     * endpoint. The log keeps the last 1,000 attempts of each.
     */
    list(options: ListAttempts): Promise<LogPage<Attempt>>;
  };
  /**
   * Sends one message or the messages of a time span again. The messages keep their ids and bytes,
   * and are signed with the current secret. They are sent within the limits, after all other
   * messages, and also to disabled endpoints. A replay does not affect the health of an endpoint.
   * Resolves with the number of stored messages.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   * @throws {@link MessageMissingError} when the tenant has no such message.
   * @throws {@link EndpointMissingError} when the tenant has no such endpoint.
   */
  replay(options: ReplayOptions): Promise<number>;
  /**
   * Sends the failed messages of an endpoint again, the oldest first. Resolves with the number of
   * messages. Throws the same errors as `replay`.
   */
  recover(options: RecoverOptions): Promise<number>;
  /**
   * Deletes a message and its attempts, or all messages and endpoints of a tenant. Pending messages
   * are not sent. Resolves with the number of deleted messages.
   */
  expunge(options: ExpungeOptions): Promise<number>;
}

/** A message that is sent again. */
interface Copy extends Pick<MessageCopy, "copy"> {
  readonly id: string;
}

/** The number of entries that are read and stored at once. */
const AT_ONCE = 500;
/**
 * How many messages are read at once with their data, and the number of characters at which a page
 * ends.
 */
const BODIES_AT_ONCE = 20;
const MOST_PAGE_CHARACTERS = 8_000_000;

export function createLog(parts: ExpungeParts): WebhookLog {
  const { store, queue, tenantOf, log: changes } = parts;

  async function messageOf(tenant: string, id: string): Promise<Message | undefined> {
    const found = await store.message({ tenant, message: id });
    return found && asMessage(id, found);
  }

  /** Returns the first messages that fit on a page, and the number of messages that were read. */
  async function pageOf(
    tenant: string,
    ids: readonly string[],
  ): Promise<{ readonly entries: readonly Message[]; readonly read: number }> {
    const entries: Message[] = [];
    let read = 0;
    for (let room = MOST_PAGE_CHARACTERS; read < ids.length && room > 0;) {
      const some = ids.slice(read, read + BODIES_AT_ONCE);
      const found = await Promise.all(some.map((id) => store.message({ tenant, message: id })));
      for (const [at, each] of found.entries()) {
        if (each === undefined) continue;
        entries.push(asMessage(some[at]!, each));
        room -= each.body.length;
      }
      read += some.length;
    }
    return { entries, read };
  }

  async function recordOf(name: EndpointName): Promise<EndpointRecord | undefined> {
    const { record } = await store.endpoint(name);
    return record === undefined ? undefined : readRecord(record);
  }

  async function assertThere(name: EndpointName): Promise<void> {
    if ((await recordOf(name)) === undefined) throw new EndpointMissingError(name);
  }

  /** Returns the messages that have not expired. */
  async function copiesOf(tenant: string, ids: readonly string[]): Promise<readonly Copy[]> {
    const found = await Promise.all(ids.map((id) => store.addressed({ tenant, message: id })));
    return found.flatMap((each, at) =>
      each === undefined ? [] : [{ id: ids[at]!, copy: each.copy }],
    );
  }

  /** Sends messages to an endpoint again, in order. Returns the number of messages. */
  async function sendAgain(
    name: EndpointName,
    messages: readonly Copy[],
    by: string | undefined,
  ): Promise<number> {
    const record = await recordOf(name);
    if (record === undefined) return 0;
    const { born, ordered = false, batch: most = 1 } = record;
    const purpose = "replay";
    if (ordered) {
      const entries = messages.map(({ id: message }) => ({ purpose, message, by }) as const);
      const step = await store.joinLine({ ...name, entries });
      if (step === undefined) return 0;
      await storeStep(queue, { ...name, step, most });
    } else {
      const jobs = messages.map(({ id: message, copy }): DeliveryJob => {
        const first = { attempt: 1, series: newSeries() };
        return { ...name, message, copy, ...first, purpose, born, by };
      });
      await storeFirst(queue, jobs, () => 0);
    }
    return messages.length;
  }

  /** Iterates over the messages of a time span, the oldest first. */
  async function* messagesOf(
    tenant: string,
    { since, until }: Pick<ReplayOptions, "since" | "until">,
  ): AsyncGenerator<readonly string[]> {
    const wanted = spanOf({ since, until });
    const [newest] = await store.messages(tenant, { ...wanted, limit: 1 });
    if (newest === undefined) return;
    // Exclude messages that arrive from now on.
    let span = { ...wanted, untilMs: newest[1], limit: AT_ONCE, isOldestFirst: true };
    for (;;) {
      const found = await store.messages(tenant, span);
      yield found.map(([id]) => id);
      const lastMs = found.at(-1)?.[1];
      if (lastMs === undefined || found.length < AT_ONCE) return;
      const same = found.filter(([, atMs]) => atMs === lastMs).length;
      span = { ...span, sinceMs: lastMs, skip: same + (lastMs === span.sinceMs ? span.skip : 0) };
    }
  }

  /** Iterates over the failed messages of an endpoint in a time span, the oldest first. */
  async function failedAt(
    name: EndpointName,
    { since, until }: Pick<RecoverOptions, "since" | "until">,
  ): Promise<readonly string[]> {
    const all: string[] = [];
    let cursor: string | undefined;
    do {
      const span = { ...spanOf({ since, until, cursor }), limit: AT_ONCE };
      const found = await store.failed(name, span);
      all.push(...found.map(([id]) => id));
      cursor = cursorAfter(
        span,
        found.map(([, atMs]) => atMs),
      );
    } while (cursor !== undefined);
    return all.reverse();
  }

  /** Runs a replay or a recovery, and records it in the change log with the number of messages. */
  function noted(
    action: "replay" | "recover",
    given: ReplayOptions & { readonly tenant: string },
    how: () => Promise<number>,
  ): Promise<number> {
    const { tenant, endpoint: id, by, message, types, since, until } = given;
    const filter = filterFacts({
      message,
      types: types?.join(", "),
      since: since && Number(since),
      until: until && Number(until),
    });
    const change = { queue: queue.name, action, endpoint: { tenant, id }, filter, by };
    return changes.make(change, how, async (jobs) => ({ jobs }));
  }

  const log: Pick<WebhookLog, "replay" | "recover" | "expunge"> = {
    async replay(given) {
      const where = "replay()";
      const asked = readReplay(where, given);
      const { message, endpoint, types, by, since, until } = asked;
      const tenant = tenantOf(where, asked.tenant);
      if (endpoint !== undefined) await assertThere({ tenant, endpoint });
      const again = async (ids: readonly string[]): Promise<number> => {
        const found = await Promise.all(ids.map((id) => store.addressed({ tenant, message: id })));
        if (message !== undefined && found[0] === undefined) {
          throw new MessageMissingError({ messageId: message });
        }
        const byEndpoint = new Map<string, Copy[]>();
        for (const [at, each] of found.entries()) {
          if (each === undefined || !matchesType(types, each.type)) continue;
          // For a time span, an endpoint gets only the messages that were sent to it. A message
          // that is selected by id goes to any endpoint.
          const isFor = message !== undefined || each.endpoints.includes(endpoint ?? "");
          const targets = endpoint === undefined ? each.endpoints : isFor ? [endpoint] : [];
          for (const to of targets) {
            const { copy } = each;
            byEndpoint.set(to, [...(byEndpoint.get(to) ?? []), { id: ids[at]!, copy }]);
          }
        }
        let count = 0;
        for (const [to, some] of byEndpoint) {
          count += await sendAgain({ tenant, endpoint: to }, some, by);
        }
        return count;
      };
      if (message !== undefined) {
        const one = (): Promise<number> => again([message]);
        // A replay of one message by code, with no user, is not added to the change log.
        return by === undefined ? one() : noted("replay", { ...asked, tenant }, one);
      }
      return noted("replay", { ...asked, tenant }, async () => {
        let total = 0;
        for await (const ids of messagesOf(tenant, { since, until })) total += await again(ids);
        return total;
      });
    },
    async recover(given) {
      const where = "recover()";
      const { endpoint, by, since, until, tenant: named } = readRecover(where, given);
      const name = { tenant: tenantOf(where, named), endpoint };
      await assertThere(name);
      return noted("recover", { ...name, by, since, until }, async () => {
        const found = await failedAt(name, { since, until });
        let total = 0;
        for (let at = 0; at < found.length; at += AT_ONCE) {
          total += await sendAgain(
            name,
            await copiesOf(name.tenant, found.slice(at, at + AT_ONCE)),
            by,
          );
        }
        return total;
      });
    },
    expunge: createExpunge(parts),
  };

  return {
    ...log,
    messages: assertArgumentCount<WebhookLog["messages"]>({
      async get(given) {
        const where = "messages.get()";
        const { id, tenant } = readMessageRef(where, given);
        return messageOf(tenantOf(where, tenant), id);
      },
      async list(given) {
        const where = "messages.list()";
        const read = readListMessages(where, given);
        const tenant = tenantOf(where, read.tenant);
        const span = spanOf(read);
        const found = await store.messages(tenant, span);
        const { entries, read: count } = await pageOf(
          tenant,
          found.map(([id]) => id),
        );
        const times = found.slice(0, count).map(([, atMs]) => atMs);
        const isCut = count < found.length;
        return { entries, cursor: cursorAfter(isCut ? { ...span, limit: count } : span, times) };
      },
    }),
    attempts: assertArgumentCount<WebhookLog["attempts"]>({
      async list(given) {
        const where = "attempts.list()";
        const read = readListAttempts(where, given);
        const tenant = tenantOf(where, read.tenant);
        const { message, endpoint } = read;
        if (message !== undefined) {
          const texts = await store.attempts({ tenant, message });
          const entries = texts.map((text) => readAttempt(message, text)).toReversed();
          return { entries, cursor: undefined };
        }
        const span = spanOf(read);
        const name = { tenant, endpoint: endpoint! };
        const found = await store.attemptsAt(name, span);
        return {
          entries: found.flatMap(({ message: id, entry }) =>
            entry === undefined ? [] : [readAttempt(id, entry)],
          ),
          cursor: cursorAfter(
            span,
            found.map(({ atMs }) => atMs),
          ),
        };
      },
    }),
  };
}

function asMessage(
  id: string,
  { atMs, type, body, endpoints, states, unreadable }: LoggedMessage,
): Message {
  const at = [...new Set([...endpoints, ...states.keys()])];
  return {
    id,
    type,
    atMs,
    ...(unreadable === undefined
      ? { data: JSON.parse(dataOf(type, body)) as unknown }
      : { data: undefined, unreadable }),
    endpoints: Object.fromEntries(
      at.map((endpoint) => [endpoint, (states.get(endpoint) ?? "waiting") as MessageState]),
    ),
  };
}
