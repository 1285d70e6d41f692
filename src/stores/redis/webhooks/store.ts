import type { Cluster, Redis } from "ioredis";
import type { CodecError } from "../../../core/errors.ts";
import { isWithin } from "../../../core/key-path.ts";
import { baseOf, type QueueName } from "../scripts/keys.ts";
import { bindScripts } from "../scripts/script.ts";
import { hookKey } from "../scripts/webhooks/keys.ts";
import {
  DISABLED,
  FORGOTTEN,
  hookScripts,
  WOKEN,
  WORDS,
  type EndpointName,
  type MessageName,
} from "../scripts/webhooks/webhooks.ts";

/** Access to the data of a webhook sender, on the server that stores its queue. */
export type WebhookStore = ReturnType<typeof createRedisWebhooks>;

/** The endpoints of a tenant. */
export interface StoredEndpoints {
  /** A text that changes each time the endpoints change. */
  readonly version: string;
  readonly records: ReadonlyMap<string, string>;
  readonly disabled: ReadonlySet<string>;
}

/** A message as listed in its tenant's log. */
export interface LoggedMessage {
  readonly atMs: number;
  readonly type: string;
  readonly body: string;
  readonly endpoints: readonly string[];
  /** The message's state at each endpoint. */
  readonly states: ReadonlyMap<string, string>;
  /** Why this process cannot decode the body, which is then empty. Undefined if it can. */
  readonly unreadable?: CodecError | undefined;
}

/** Selects a part of a list that is sorted by time. The newest entries come first by default. */
export interface TimeSpan {
  readonly isOldestFirst?: boolean;
  readonly sinceMs: number;
  readonly untilMs: number;
  /** The number of entries to skip at the beginning. */
  readonly skip: number;
  readonly limit: number;
}

const STATE = "to:";
/** The prefix of the name of a job with a key. The text of the key follows. */
const KEYED = "key ";
const EVENTS_AT_ONCE = 1_000;
/** The number of keys with their own limits that are read at once. */
const LIMITS_AT_ONCE = 1_000;

export function createRedisWebhooks(redis: Redis | Cluster, name: QueueName) {
  const scripts = bindScripts(redis, name, hookScripts);
  type BegunAttempts = Parameters<typeof scripts.beginAttempts>[0]["attempts"];
  type EndedAttempts = Parameters<typeof scripts.endAttempts>[0];
  type EndedAttempt = Omit<EndedAttempts, "attempts"> & EndedAttempts["attempts"][number];
  const versionsKey = hookKey("versions", name);
  const limitsKey = hookKey("limits", name);
  const changedKey = hookKey("limits:changed", name);

  async function timedOf(key: string, span: TimeSpan) {
    const { isOldestFirst = false, sinceMs, untilMs, skip, limit } = span;
    const found = isOldestFirst
      ? await redis.zrangebyscore(key, sinceMs, untilMs, "WITHSCORES", "LIMIT", skip, limit)
      : await redis.zrevrangebyscore(key, untilMs, sinceMs, "WITHSCORES", "LIMIT", skip, limit);
    return found.flatMap((id, at) => (at % 2 === 0 ? [[id, Number(found[at + 1])] as const] : []));
  }

  /**
   * Reads an attempt from its entry in an endpoint's log. The entry contains the message and the
   * attempt's number.
   */
  async function entryOf({ tenant }: EndpointName, text: string) {
    const [message, number] = text.split(" ") as [string, string];
    const entry = await redis.hget(hookKey("attempts", { ...name, tenant, message }), number);
    return { message, entry: entry ?? undefined };
  }

  /**
   * Returns the states of a message. A pending state becomes `"removed"` if its endpoint was
   * removed.
   */
  async function withRemoved(
    tenant: string,
    { endpoints, states }: LoggedMessage,
  ): Promise<LoggedMessage["states"]> {
    const waiting = endpoints.filter((id) => (states.get(id) ?? "waiting") === "waiting");
    if (waiting.length === 0) return states;
    const records = await redis.hmget(hookKey("endpoints", { ...name, tenant }), ...waiting);
    const removed = waiting.filter((_, index) => records[index] === null);
    return new Map([...states, ...removed.map((id) => [id, "removed"] as const)]);
  }

  /** Reads sorted names that come after `after`. */
  function pageOf(key: string, after: string, limit: number): Promise<string[]> {
    return redis.zrangebylex(key, after === "" ? "-" : `(${after}`, "+", "LIMIT", 0, limit);
  }

  async function version(tenant: string): Promise<string> {
    return (await redis.hget(versionsKey, tenant)) ?? "";
  }

  return {
    ...scripts,
    /** Returns a text that changes each time the tenant's endpoints change. */
    version,
    async endpoints(tenant: string): Promise<StoredEndpoints> {
      // The version is read first, so that it is never newer than the endpoints.
      const versionBefore = await version(tenant);
      const [records, disabled] = await Promise.all([
        redis.hgetall(hookKey("endpoints", { ...name, tenant })),
        redis.hkeys(hookKey("disabled", { ...name, tenant })),
      ]);
      return {
        version: versionBefore,
        records: new Map(Object.entries(records)),
        disabled: new Set(disabled),
      };
    },
    async endpoint({ tenant, endpoint }: EndpointName) {
      const [record, disabled] = await Promise.all([
        redis.hget(hookKey("endpoints", { ...name, tenant }), endpoint),
        redis.hget(hookKey("disabled", { ...name, tenant }), endpoint),
      ]);
      return { record: record ?? undefined, disabled: DISABLED.read(disabled) };
    },
    /**
     * Reads the state of an endpoint and the last of its attempts. The endpoint's jobs have the key
     * `key`.
     */
    async look(asked: EndpointName & { readonly key: string; readonly most: number }) {
      const { last, ...seen } = await scripts.look(asked);
      return { ...seen, attempts: await Promise.all(last.map((text) => entryOf(asked, text))) };
    },
    /** Returns sorted endpoint ids that come after `after`. */
    ids: (tenant: string, after: string, limit: number) =>
      pageOf(hookKey("ids", { ...name, tenant }), after, limit),
    /** Returns sorted tenants with endpoints that come after `after`. */
    tenants: (after: string, limit: number) => pageOf(hookKey("tenants", name), after, limit),
    countEndpoints: (tenant: string) => redis.hlen(hookKey("endpoints", { ...name, tenant })),
    /**
     * Returns the limits that are set for a tenant or an endpoint, as JSON. `key` is the text of
     * its key.
     */
    limits: async (key: string) => (await redis.hget(limitsKey, key)) ?? undefined,
    async remove(endpoint: EndpointName & { readonly key: string }): Promise<boolean> {
      for (;;) {
        const removed = await scripts.remove(endpoint);
        if (removed !== "more") return removed === "removed";
      }
    },
    async message(message: MessageName): Promise<LoggedMessage | undefined> {
      const fields = await redis.hgetall(hookKey("message", { ...name, ...message }));
      if (fields["at"] === undefined) return undefined;
      const found = readMessage(fields);
      return { ...found, states: await withRemoved(message.tenant, found) };
    },
    /**
     * Returns the type of a message, and the endpoints that it was sent to. Undefined if the
     * message is not stored.
     */
    async addressed(message: MessageName) {
      const key = hookKey("message", { ...name, ...message });
      const [type, endpoints, copy] = await redis.hmget(key, "type", "endpoints", "copy");
      if (typeof type !== "string") return undefined;
      return { type, endpoints: WORDS.read(endpoints ?? ""), copy: copy ?? undefined };
    },
    /** Returns the next step of a line. Undefined if no message is pending. */
    lineStep: async (endpoint: EndpointName) =>
      (await redis.hget(hookKey("line:state", { ...name, ...endpoint }), "step")) ?? undefined,
    lineLength: (endpoint: EndpointName) => redis.llen(hookKey("line", { ...name, ...endpoint })),
    begin: gathered((attempts: readonly BegunAttempts[number][]) =>
      scripts.beginAttempts({ attempts }),
    ),
    /**
     * Records the end of an attempt. Attempts are sent together with the settings of the first one,
     * because all attempts of a sender have the same settings.
     */
    end: gathered((attempts: readonly EndedAttempt[]) =>
      scripts.endAttempts({ ...attempts[0]!, attempts }),
    ),
    /** Returns the messages of a tenant, sorted by arrival time. */
    messages: (tenant: string, span: TimeSpan) =>
      timedOf(hookKey("messages", { ...name, tenant }), span),
    /**
     * Returns the messages that failed permanently at an endpoint, sorted by the time of failure.
     */
    failed: (endpoint: EndpointName, span: TimeSpan) =>
      timedOf(hookKey("failed", { ...name, ...endpoint }), span),
    /** Returns the attempts of a message, in order. */
    async attempts(message: MessageName) {
      const entries = await redis.hgetall(hookKey("attempts", { ...name, ...message }));
      return Object.entries(entries)
        .toSorted(([one], [other]) => Number(one) - Number(other))
        .map(([, text]) => text);
    },
    /**
     * Returns the attempts at an endpoint, sorted by their end time. Expired attempts have no
     * entry.
     */
    async attemptsAt(endpoint: EndpointName, span: TimeSpan) {
      const found = await timedOf(hookKey("log", { ...name, ...endpoint }), span);
      return Promise.all(
        found.map(async ([text, atMs]) => ({ ...(await entryOf(endpoint, text)), atMs })),
      );
    },
    /** Removes the names of a tenant and its endpoints from the list of changed limits, and adds the tenant's digest. */
    async forgetLimits({ tenant, digest }: { readonly tenant: string; readonly digest: string }) {
      const found: string[] = [];
      for (let from = 0; ; from += LIMITS_AT_ONCE) {
        const names = await redis.zrange(changedKey, from, from + LIMITS_AT_ONCE - 1);
        found.push(...names.filter((each) => isWithin(each.replace(WOKEN, ""), tenant)));
        if (names.length < LIMITS_AT_ONCE) break;
      }
      do {
        await scripts.forgetLimits({ digest, names: found.splice(0, LIMITS_AT_ONCE) });
      } while (found.length > 0);
    },
    /** Removes a tenant's jobs from the queue's stream of events. */
    async forgetEvents(tenant: string) {
      const stream = `${baseOf(name)}events`;
      const jobs = new Set<string>();
      for (let from = "-"; ;) {
        const page = await redis.xrange(stream, from, "+", "COUNT", EVENTS_AT_ONCE);
        const meant = page.flatMap(([id, fields]) => {
          const { jobId, name: key } = eventOf(fields);
          // Only the first event of a job contains its key, so later events are found by the job's
          // id.
          if (key?.startsWith(KEYED) && isWithin(key.slice(KEYED.length), tenant)) jobs.add(jobId);
          return jobs.has(jobId) ? [id] : [];
        });
        if (meant.length > 0) await redis.xdel(stream, ...meant);
        if (page.length < EVENTS_AT_ONCE) return;
        from = `(${page.at(-1)![0]}`;
      }
    },
    /**
     * Returns the current version and the limits that changed after `version`, by the texts of
     * their keys. If the current version is lower, Redis has lost its data, and all limits are
     * returned.
     */
    async limitsSince(version: number) {
      const now = Number((await redis.get(hookKey("limits:version", name))) ?? 0);
      const limits = new Map<string, string | undefined>();
      /** Keys that were woken since `version`. */
      const woken: string[] = [];
      /** The digests of tenants that were expunged since `version`. */
      const forgotten: string[] = [];
      for (let at = now < version ? 0 : version; at < now;) {
        const span = { isOldestFirst: true, skip: 0, limit: LIMITS_AT_ONCE };
        const changed = await timedOf(changedKey, { ...span, sinceMs: at + 1, untilMs: now });
        const keys: string[] = [];
        for (const [key] of changed) {
          if (key.startsWith(WOKEN)) woken.push(key.slice(WOKEN.length));
          else if (key.startsWith(FORGOTTEN)) forgotten.push(key.slice(FORGOTTEN.length));
          else keys.push(key);
        }
        const values = keys.length === 0 ? [] : await redis.hmget(limitsKey, ...keys);
        for (const [index, key] of keys.entries()) limits.set(key, values[index] ?? undefined);
        at = changed.at(-1)?.[1] ?? now;
      }
      return { version: now, limits, woken, forgotten };
    },
  };
}

/** Reads an event that BullMQ has stored. */
function eventOf(fields: readonly string[]): { readonly jobId: string; readonly name?: string } {
  const pairs = fields.flatMap((field, at) => (at % 2 === 0 ? [[field, fields[at + 1]]] : []));
  return Object.fromEntries(pairs) as { readonly jobId: string; readonly name?: string };
}

function readMessage(fields: Readonly<Record<string, string>>): LoggedMessage {
  const { at, type, body, endpoints } = fields as Record<
    "at" | "type" | "body" | "endpoints",
    string
  >;
  const states = Object.entries(fields)
    .filter(([field]) => field.startsWith(STATE))
    .map(([field, state]) => [field.slice(STATE.length), state] as const);
  return {
    atMs: Number(at),
    type,
    body,
    endpoints: WORDS.read(endpoints),
    states: new Map(states),
  };
}

/** The most inputs in one script. More would block the server for too long. */
const MOST_GATHERED = 50;

/**
 * Gathers the inputs of one turn of the event loop, and sends them together. Several attempts
 * usually begin or end together. One script per attempt took a quarter of an attempt's time.
 */
export function gathered<Input, Output>(
  askAll: (inputs: readonly Input[]) => Promise<readonly Output[]>,
): (input: Input) => Promise<Output> {
  interface Waiting {
    readonly input: Input;
    readonly resolve: (output: Output) => void;
    readonly reject: (error: unknown) => void;
  }
  let waiting: Waiting[] = [];

  function ask(): void {
    const all = waiting;
    waiting = [];
    for (let from = 0; from < all.length; from += MOST_GATHERED)
      void askSome(all.slice(from, from + MOST_GATHERED));
  }

  async function askSome(some: readonly Waiting[]): Promise<void> {
    try {
      const outputs = await askAll(some.map(({ input }) => input));
      for (const [at, { resolve }] of some.entries()) resolve(outputs[at]!);
    } catch (error) {
      for (const { reject } of some) reject(error);
    }
  }

  return (input) =>
    new Promise((resolve, reject) => {
      if (waiting.length === 0) setImmediate(ask);
      waiting.push({ input, resolve, reject });
    });
}
