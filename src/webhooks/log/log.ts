import { assertArgumentCount } from "../../core/input/arguments.ts";
import { filterFacts } from "../../core/stores/insight/steering.ts";
import { EndpointMissingError, MessageMissingError } from "../../core/stores/webhooks/errors.ts";
import type { EndpointName, LoggedMessage, MessageCopy } from "../../core/stores/webhooks/store.ts";
import { readRecord, type EndpointRecord } from "../endpoints/record.ts";
import { matchesType } from "../endpoints/wants.ts";
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

/** A message, and what became of it. */
export interface Message {
  readonly id: string;
  readonly type: string;
  /** When it came, in ms since 1970. */
  readonly atMs: number;
  readonly data: unknown;
  /** What became of it, by endpoint. */
  readonly endpoints: Readonly<Record<string, MessageState>>;
}

/**
 * `"waiting"` for an attempt; `"delivered"`; `"failed"`: it is not tried there again unless it is replayed; or `"removed"`:
 * the endpoint was removed before it was delivered there.
 */
export type MessageState = "waiting" | "delivered" | "failed" | "removed";

/** A page of a list, the newest first. */
export interface LogPage<Entry> {
  readonly entries: readonly Entry[];
  /** Where the next page begins; undefined after the last one. */
  readonly cursor: string | undefined;
}

/** The log of a sender. What one tenant has is not there for another. All reject with StoreUnavailableError when Redis is away. */
export interface WebhookLog {
  readonly messages: {
    /** A message; undefined if the tenant has none of this id, or it is no longer kept. */
    get(message: MessageRef): Promise<Message | undefined>;
    /** A page of the tenant's messages, by when they came; of fewer than its `limit` where they have more than 8 MB. */
    list(options?: ListMessages): Promise<LogPage<Message>>;
  };
  readonly attempts: {
    /** The attempts of a message, on one page; or a page of those at an endpoint. The last 1,000 of each are kept. */
    list(options: ListAttempts): Promise<LogPage<Attempt>>;
  };
  /**
   * Sends a message again, or those of a time: with the same id and bytes and the secret of now, within the limits and
   * after all else, also to endpoints that are disabled. An endpoint's health does not change by it. Resolves with how
   * many were stored to be sent.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   * @throws {@link MessageMissingError} when the tenant has no such message.
   * @throws {@link EndpointMissingError} when the tenant has no such endpoint.
   */
  replay(options: ReplayOptions): Promise<number>;
  /** Sends again what has failed for good at an endpoint, the oldest first; how many. Throws as `replay` does. */
  recover(options: RecoverOptions): Promise<number>;
  /**
   * Forgets a message and its attempts; or all messages and endpoints of a tenant. What waits is not sent. Resolves with
   * how many messages were removed.
   */
  expunge(options: ExpungeOptions): Promise<number>;
}

/** A message that is sent again. */
interface Copy extends Pick<MessageCopy, "copy"> {
  readonly id: string;
}

/** How many are read and stored at a time. */
const AT_ONCE = 500;
/** How many messages are read at a time with their data, and after how much of it their page ends. */
const BODIES_AT_ONCE = 20;
const MOST_PAGE_CHARACTERS = 8_000_000;

export function createLog(parts: ExpungeParts): WebhookLog {
  const { store, ask, queue, tenantOf, log: changes } = parts;

  async function messageOf(tenant: string, id: string): Promise<Message | undefined> {
    const found = await ask(() => store.message({ tenant, message: id }));
    return found && asMessage(id, found);
  }

  /** The first of some messages, as far as a page has room for their data; and how many were read. */
  async function pageOf(
    tenant: string,
    ids: readonly string[],
  ): Promise<{ readonly entries: readonly Message[]; readonly read: number }> {
    const entries: Message[] = [];
    let read = 0;
    for (let room = MOST_PAGE_CHARACTERS; read < ids.length && room > 0;) {
      const some = ids.slice(read, read + BODIES_AT_ONCE);
      const found = await Promise.all(
        some.map((id) => ask(() => store.message({ tenant, message: id }))),
      );
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
    const { record } = await ask(() => store.endpoint(name));
    return record === undefined ? undefined : readRecord(record);
  }

  async function assertThere(name: EndpointName): Promise<void> {
    if ((await recordOf(name)) === undefined) throw new EndpointMissingError(name);
  }

  /** The messages that are still kept. */
  async function copiesOf(tenant: string, ids: readonly string[]): Promise<readonly Copy[]> {
    const found = await Promise.all(
      ids.map((id) => ask(() => store.addressed({ tenant, message: id }))),
    );
    return found.flatMap((each, at) =>
      each === undefined ? [] : [{ id: ids[at]!, copy: each.copy }],
    );
  }

  /** Has messages sent to an endpoint again, in their order; how many. */
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
      const step = await ask(() => store.joinLine(name, entries));
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

  /** The messages of a time, the oldest first. */
  async function* messagesOf(
    tenant: string,
    { since, until }: Pick<ReplayOptions, "since" | "until">,
  ): AsyncGenerator<readonly string[]> {
    const wanted = spanOf({ since, until });
    const [newest] = await ask(() => store.messages(tenant, { ...wanted, limit: 1 }));
    if (newest === undefined) return;
    // What comes meanwhile is none of these.
    let span = { ...wanted, untilMs: newest[1], limit: AT_ONCE, isOldestFirst: true };
    for (;;) {
      const found = await ask(() => store.messages(tenant, span));
      yield found.map(([id]) => id);
      const lastMs = found.at(-1)?.[1];
      if (lastMs === undefined || found.length < AT_ONCE) return;
      const same = found.filter(([, atMs]) => atMs === lastMs).length;
      span = { ...span, sinceMs: lastMs, skip: same + (lastMs === span.sinceMs ? span.skip : 0) };
    }
  }

  /** What failed for good at an endpoint in a time, the oldest first. */
  async function failedAt(
    name: EndpointName,
    { since, until }: Pick<RecoverOptions, "since" | "until">,
  ): Promise<readonly string[]> {
    const all: string[] = [];
    let cursor: string | undefined;
    do {
      const span = { ...spanOf({ since, until, cursor }), limit: AT_ONCE };
      const found = await ask(() => store.failed(name, span));
      all.push(...found.map(([id]) => id));
      cursor = cursorAfter(
        span,
        found.map(([, atMs]) => atMs),
      );
    } while (cursor !== undefined);
    return all.reverse();
  }

  /** Notes in the log of changes by hand that something is sent again, and how much. */
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
        const found = await Promise.all(
          ids.map((id) => ask(() => store.addressed({ tenant, message: id }))),
        );
        if (message !== undefined && found[0] === undefined) {
          throw new MessageMissingError({ messageId: message });
        }
        const byEndpoint = new Map<string, Copy[]>();
        for (const [at, each] of found.entries()) {
          if (each === undefined || !matchesType(types, each.type)) continue;
          // Of a time, an endpoint gets what was for it; a message that is named goes to any.
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
        // What code does with one message is its own business.
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
        const found = await ask(() => store.messages(tenant, span));
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
          const texts = await ask(() => store.attempts({ tenant, message }));
          const entries = texts.map((text) => readAttempt(message, text)).toReversed();
          return { entries, cursor: undefined };
        }
        const span = spanOf(read);
        const name = { tenant, endpoint: endpoint! };
        const found = await ask(() => store.attemptsAt(name, span));
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

function asMessage(id: string, { atMs, type, body, endpoints, states }: LoggedMessage): Message {
  const at = [...new Set([...endpoints, ...states.keys()])];
  return {
    id,
    type,
    atMs,
    data: JSON.parse(dataOf(type, body)) as unknown,
    endpoints: Object.fromEntries(
      at.map((endpoint) => [endpoint, (states.get(endpoint) ?? "waiting") as MessageState]),
    ),
  };
}
