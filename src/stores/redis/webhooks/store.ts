import type { Cluster, Redis } from "ioredis";
import type {
  EndpointName,
  LoggedMessage,
  StoredEndpoints,
  TimedId,
  TimeSpan,
  WebhookStore,
} from "../../../core/stores/webhooks/store.ts";
import { isWithin } from "../../../core/key-path.ts";
import { baseOf, type QueueName } from "../scripts/keys.ts";
import { runScript } from "../scripts/script.ts";
import { webhookKeys } from "../scripts/webhooks/keys.ts";
import { broadcastsAdvance, broadcastsBegin } from "../scripts/webhooks/broadcasts.ts";
import {
  attemptsBegin,
  attemptsEnd,
  endpointsEnable,
  endpointsLook,
  endpointsPut,
  endpointsRemove,
  endpointsWake,
  FORGOTTEN,
  limitsForget,
  limitsSet,
  messagesExpunge,
  messagesSent,
  messagesStore,
  readDisabled,
  WOKEN,
  wordsOf,
  type BeginRequest,
} from "../scripts/webhooks/webhooks.ts";
import { lineBegin, lineJoin, lineStep } from "../scripts/webhooks/lines.ts";

const STATE = "to:";
/** How the name of a job with a key begins, before the text of its key. */
const KEYED = "key ";
const EVENTS_AT_ONCE = 1_000;
/** How many keys with their own limits are read at once. */
const LIMITS_AT_ONCE = 1_000;

/** What a sender of webhooks keeps, in Redis, beside its queue. */
export function createRedisWebhooks(redis: Redis | Cluster, name: QueueName): WebhookStore {
  const keys = webhookKeys(name);
  const begin = gathered((attempts: readonly BeginRequest[]) =>
    runScript(redis, attemptsBegin, { ...name, attempts }),
  );

  async function timedOf(key: string, span: TimeSpan): Promise<TimedId[]> {
    const { isOldestFirst = false, sinceMs, untilMs, skip, limit } = span;
    const found = isOldestFirst
      ? await redis.zrangebyscore(key, sinceMs, untilMs, "WITHSCORES", "LIMIT", skip, limit)
      : await redis.zrevrangebyscore(key, untilMs, sinceMs, "WITHSCORES", "LIMIT", skip, limit);
    return found.flatMap((id, at) => (at % 2 === 0 ? [[id, Number(found[at + 1])] as const] : []));
  }

  /** An attempt at an endpoint, by what its log says: the message and the number of the attempt. */
  async function entryOf({ tenant }: EndpointName, text: string) {
    const [message, number] = text.split(" ") as [string, string];
    const entry = await redis.hget(keys.message("attempts", { tenant, message }), number);
    return { message, entry: entry ?? undefined };
  }

  /** The states of a message. Where it waits for an endpoint that was removed, it waits no more. */
  async function withRemoved(
    tenant: string,
    { endpoints, states }: LoggedMessage,
  ): Promise<LoggedMessage["states"]> {
    const waiting = endpoints.filter((id) => (states.get(id) ?? "waiting") === "waiting");
    if (waiting.length === 0) return states;
    const records = await redis.hmget(keys.tenant("endpoints", tenant), ...waiting);
    const removed = waiting.filter((_, index) => records[index] === null);
    return new Map([...states, ...removed.map((id) => [id, "removed"] as const)]);
  }

  /** Of names in their order, those after one. */
  function pageOf(key: string, after: string, limit: number): Promise<string[]> {
    return redis.zrangebylex(key, after === "" ? "-" : `(${after}`, "+", "LIMIT", 0, limit);
  }

  return {
    async version(tenant) {
      return (await redis.hget(keys.all("versions"), tenant)) ?? "";
    },
    async endpoints(tenant) {
      // The version first: what is read after it is that new at least.
      const version = (await redis.hget(keys.all("versions"), tenant)) ?? "";
      const [records, disabled] = await Promise.all([
        redis.hgetall(keys.tenant("endpoints", tenant)),
        redis.hgetall(keys.tenant("disabled", tenant)),
      ]);
      const found: StoredEndpoints = {
        version,
        records: new Map(Object.entries(records)),
        disabled: new Map(Object.entries(disabled).map(([id, text]) => [id, readDisabled(text)])),
      };
      return found;
    },
    async endpoint({ tenant, endpoint }) {
      const [record, disabled] = await Promise.all([
        redis.hget(keys.tenant("endpoints", tenant), endpoint),
        redis.hget(keys.tenant("disabled", tenant), endpoint),
      ]);
      return {
        ...(record === null ? undefined : { record }),
        ...(disabled === null ? undefined : { disabled: readDisabled(disabled) }),
      };
    },
    async look(endpoint, key, most) {
      const { last, ...seen } = await runScript(redis, endpointsLook, {
        ...name,
        ...endpoint,
        key,
        most,
      });
      return { ...seen, attempts: await Promise.all(last.map((text) => entryOf(endpoint, text))) };
    },
    ids: (tenant, after, limit) => pageOf(keys.tenant("ids", tenant), after, limit),
    tenants: (after, limit) => pageOf(keys.all("tenants"), after, limit),
    countEndpoints: (tenant) => redis.hlen(keys.tenant("endpoints", tenant)),
    async limits(key) {
      return (await redis.hget(keys.all("limits"), key)) ?? undefined;
    },
    setLimits: (key, limits) => runScript(redis, limitsSet, { ...name, key, limits }),
    wake: (key) => runScript(redis, endpointsWake, { ...name, key }),
    put: (request) => runScript(redis, endpointsPut, { ...name, ...request }),
    async remove(endpoint, key) {
      for (;;) {
        const removed = await runScript(redis, endpointsRemove, { ...name, ...endpoint, key });
        if (removed !== "more") return removed === "removed";
      }
    },
    setDisabled: (endpoint, why) =>
      runScript(redis, endpointsEnable, { ...name, ...endpoint, why }),
    storeMessage: (message) => runScript(redis, messagesStore, { ...name, ...message }),
    noteSent: (message) => runScript(redis, messagesSent, { ...name, ...message }),
    beginBroadcast: (broadcast) => runScript(redis, broadcastsBegin, { ...name, ...broadcast }),
    advanceBroadcast: (advance) => runScript(redis, broadcastsAdvance, { ...name, ...advance }),
    async message(message) {
      const fields = await redis.hgetall(keys.message("message", message));
      if (fields["at"] === undefined) return undefined;
      const found = readMessage(fields);
      return { ...found, states: await withRemoved(message.tenant, found) };
    },
    async addressed(message) {
      const key = keys.message("message", message);
      const [type, endpoints, copy] = await redis.hmget(key, "type", "endpoints", "copy");
      if (typeof type !== "string") return undefined;
      return { type, endpoints: wordsOf(endpoints ?? ""), copy: copy ?? undefined };
    },
    joinLine: (endpoint, entries) => runScript(redis, lineJoin, { ...name, ...endpoint, entries }),
    async lineStep(endpoint) {
      return (await redis.hget(keys.endpoint("line:state", endpoint), "step")) ?? undefined;
    },
    lineLength: (endpoint) => redis.llen(keys.endpoint("line", endpoint)),
    beginStep: (step, timeoutMs) => runScript(redis, lineBegin, { ...name, ...step, timeoutMs }),
    endStep: (ended) => runScript(redis, lineStep, { ...name, ...ended }),
    begin: ({ tenant, endpoint, message, born, copy }, timeoutMs) =>
      begin({ tenant, endpoint, message, born, copy, timeoutMs }),
    recorder: (rules) =>
      gathered((attempts) => runScript(redis, attemptsEnd, { ...name, rules, attempts })),
    messages: (tenant, span) => timedOf(keys.tenant("messages", tenant), span),
    failed: (endpoint, span) => timedOf(keys.endpoint("failed", endpoint), span),
    async attempts(message) {
      const entries = Object.entries(await redis.hgetall(keys.message("attempts", message)));
      return entries
        .toSorted(([one], [other]) => Number(one) - Number(other))
        .map(([, text]) => text);
    },
    async attemptsAt(endpoint, span) {
      const found = await timedOf(keys.endpoint("log", endpoint), span);
      return Promise.all(
        found.map(async ([text, atMs]) => ({ ...(await entryOf(endpoint, text)), atMs })),
      );
    },
    async expungeMessage({ tenant, message }) {
      return (await runScript(redis, messagesExpunge, { ...name, tenant, message })).removed > 0;
    },
    expungeTenant: (tenant) => runScript(redis, messagesExpunge, { ...name, tenant }),
    async forgetLimits(tenant, digest) {
      const found: string[] = [];
      for (let from = 0; ; from += LIMITS_AT_ONCE) {
        const to = from + LIMITS_AT_ONCE - 1;
        const names = await redis.zrange(keys.all("limits:changed"), from, to);
        found.push(...names.filter((each) => isWithin(each.replace(WOKEN, ""), tenant)));
        if (names.length < LIMITS_AT_ONCE) break;
      }
      do {
        const names = found.splice(0, LIMITS_AT_ONCE);
        await runScript(redis, limitsForget, { ...name, digest, names });
      } while (found.length > 0);
    },
    async forgetEvents(tenant) {
      const stream = `${baseOf(name)}events`;
      const jobs = new Set<string>();
      for (let from = "-"; ;) {
        const page = await redis.xrange(stream, from, "+", "COUNT", EVENTS_AT_ONCE);
        const meant = page.flatMap(([id, fields]) => {
          const { jobId, name: key } = eventOf(fields);
          // An event names its job's key when the job is added, and later only the job.
          if (key?.startsWith(KEYED) && isWithin(key.slice(KEYED.length), tenant)) jobs.add(jobId);
          return jobs.has(jobId) ? [id] : [];
        });
        if (meant.length > 0) await redis.xdel(stream, ...meant);
        if (page.length < EVENTS_AT_ONCE) return;
        from = `(${page.at(-1)![0]}`;
      }
    },
    async limitsSince(version) {
      const now = Number((await redis.get(keys.all("limits:version"))) ?? 0);
      const limits = new Map<string, string | undefined>();
      const woken: string[] = [];
      const forgotten: string[] = [];
      for (let at = now < version ? 0 : version; at < now;) {
        const changed = await redis.zrangebyscore(
          keys.all("limits:changed"),
          `(${at}`,
          now,
          "WITHSCORES",
          "LIMIT",
          0,
          LIMITS_AT_ONCE,
        );
        if (changed.length === 0) break;
        const all = changed.filter((_each, index) => index % 2 === 0);
        const ofKeys = all.filter((key) => !key.startsWith(WOKEN) && !key.startsWith(FORGOTTEN));
        forgotten.push(
          ...all
            .filter((key) => key.startsWith(FORGOTTEN))
            .map((key) => key.slice(FORGOTTEN.length)),
        );
        woken.push(
          ...all.filter((key) => key.startsWith(WOKEN)).map((key) => key.slice(WOKEN.length)),
        );
        const values = ofKeys.length === 0 ? [] : await redis.hmget(keys.all("limits"), ...ofKeys);
        for (const [index, key] of ofKeys.entries()) limits.set(key, values[index] ?? undefined);
        at = Number(changed.at(-1));
      }
      return { version: now, limits, woken, forgotten };
    },
  };
}

/** What an event of BullMQ's says of a job. */
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
  return { atMs: Number(at), type, body, endpoints: wordsOf(endpoints), states: new Map(states) };
}

/** More at once would keep others from the server for long. */
const MOST_GATHERED = 50;

/**
 * Gathers what is asked within one turn of the event loop, and asks it together: attempts begin and end several at a time,
 * and a script for each of them took a quarter of what an attempt costs.
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
