/**
 * Scripts for webhook senders: their endpoints, messages, attempts, ordered lines and broadcasts.
 */
import { baseOf, encoded, type QueueName } from "../keys.ts";
import { shapeScript } from "../script.ts";
import {
  constant,
  flag,
  from,
  int,
  list,
  oneOf,
  optional,
  readerOf,
  rest,
  text,
  word,
  written,
  type Read,
  type Reader,
  type Shape,
} from "../shape.ts";
import { hookBase, hookKey, hookKeys, type HookNames } from "./keys.ts";

/** One endpoint of one tenant. */
export type EndpointName = HookNames<"health">;
export type MessageName = HookNames<"message">;

/**
 * One message. A new message can have the id of an expired message. `copy` distinguishes the two.
 */
export interface MessageCopy extends MessageName {
  /** Undefined for a message that an older version of Sluice has stored. */
  readonly copy: string | undefined;
}

/** One attempt of a message at an endpoint. */
export interface AttemptName extends EndpointName, MessageCopy {
  /**
   * Distinguishes this endpoint from removed endpoints with the same name. Undefined in jobs of
   * older versions.
   */
  readonly born?: string | undefined;
}

export interface Disabled {
  readonly atMs: number;
  /** Why the endpoint is disabled: `"failing"`, `"gone"`, or an operator's reason. */
  readonly reason: string;
  /** @deprecated Use `reason`, which has the same value. */
  readonly why: string;
}

/** A list of names, stored as a text with spaces between them. */
export const WORDS: Shape<readonly string[]> = {
  read: (stored) => (stored === "" ? [] : String(stored).split(" ")),
  write: (words) => words.join(" "),
};

/** Reads a time and the reason that follows it. */
export const DISABLED: Reader<Disabled | undefined> = {
  read(stored) {
    const [atMs, ...words] = optional(WORDS).read(stored) ?? [];
    const reason = words.join(" ");
    return atMs === undefined ? undefined : { atMs: Number(atMs), reason, why: reason };
  },
};

/** A message in the line of an ordered endpoint. */
interface LineEntry {
  readonly purpose: "send" | "replay";
  readonly message: string;
  /** The user who requested a replay. */
  readonly by?: string | undefined;
}

const LINE_ENTRY = written(({ purpose, message, by = "" }: LineEntry) =>
  `${purpose} ${message} ${by}`.trimEnd(),
);

const BEGUN_LINE = readerOf({
  record: text,
  disabled: DISABLED,
  /** How long the circuit breaker still blocks the endpoint; 0 if the attempt may begin. */
  waitMs: int,
  nowMs: int,
  attempt: int,
  purpose: word<LineEntry["purpose"]>(),
  by: optional(text),
  messages: rest({
    message: text,
    atMs: int,
    type: text,
    /** Undefined if the message is no longer stored. */
    body: optional(text),
    state: text,
    copy: optional(text),
  }),
});
export type LineMessage = Read<typeof BEGUN_LINE>["messages"][number];

const BROADCAST_STATE = {
  /** The last tenant that received the broadcast. Empty at the start. */
  cursor: text,
  isDone: flag,
  tenants: int,
  endpoints: int,
};
export type BroadcastState = Read<typeof BROADCAST_STATE>;

/** The stored text that means all tenants. No tenant has this name. */
const ALL = "*";
const NAMED: Shape<readonly string[] | undefined> = {
  read: (stored) => (stored === ALL ? undefined : WORDS.read(stored)),
  write: (named) => (named === undefined ? ALL : WORDS.write(named)),
};

/** What an attempt reveals about the health of its endpoint. */
export type HealthSeen = "ok" | "bad" | "same";

/** A field of an endpoint's record, as text. A script searches the record for this text. */
const partOf = <Value extends string | number>(field: string) =>
  optional(written((value: Value) => `"${field}":${JSON.stringify(value)}`));

/**
 * A prefix in the list of changed limits. Other entries are encoded keys. An entry with this prefix
 * makes workers wake the key that follows. No tenant's name begins with this prefix.
 */
export const WOKEN = "!";
/**
 * Another prefix in the list of changed limits. An entry with this prefix contains the digest of an
 * expunged tenant.
 */
export const FORGOTTEN = "*";

/**
 * The maximum number of messages that one script removes. It is limited, because Redis serves no
 * other request during a script.
 */
const EXPUNGED_AT_ONCE = 100;
/** The maximum number of messages that one script removes from the line of an ordered endpoint. */
const REMOVED_AT_ONCE = 1_000;
/** The maximum number of bytes in one batch. One message may have the same size. */
const MOST_BATCH_BYTES = 300_000;

/** The prefix of the Redis keys of a tenant's messages. */
const messages = from((of: QueueName & HookNames<"endpoints">) =>
  hookKey("message", { ...of, message: "" }),
);

const lineKeys = hookKeys("line", "line:state");

/** The keys of a sender's endpoints and of their limits. */
const ENDPOINT_KEYS = [
  "endpoints",
  "ids",
  "versions",
  "limits",
  "limits:changed",
  "limits:version",
  "tenants",
] as const;

export const hookScripts = {
  /** Stores an endpoint, unless another process has changed it since it was read. */
  put: shapeScript({
    name: "webhooks/endpoints/endpoints-put",
    bringsJobs: true,
    keys: hookKeys(...ENDPOINT_KEYS),
    args: {
      tenant: text,
      endpoint: text,
      record: text,
      /**
       * The endpoint's stored record, as the caller last read it. If the record has changed since,
       * nothing is stored. Undefined for a new endpoint.
       */
      before: optional(text),
      /** The maximum number of endpoints per tenant. */
      most: int,
      key: text,
      /** The endpoint's own limits, as JSON. */
      limits: optional(text),
    },
    reply: oneOf(["too-many", "changed", "stored"], -1),
  }),

  /** Removes an endpoint. If its line is long, each call first removes a part of the line. */
  remove: shapeScript({
    name: "webhooks/endpoints/endpoints-remove",
    keys: hookKeys(...ENDPOINT_KEYS, "disabled", "health", "log", "failed", "line", "line:state"),
    args: {
      tenant: text,
      endpoint: text,
      key: text,
      messages,
      most: constant(REMOVED_AT_ONCE),
    },
    reply: oneOf(["missing", "removed", "more"]),
  }),

  /**
   * Disables an endpoint if a reason is passed, and enables it otherwise. Returns undefined if the
   * endpoint does not exist.
   */
  setDisabled: shapeScript({
    name: "webhooks/endpoints/endpoints-enable",
    keys: hookKeys("endpoints", "versions", "disabled", "health"),
    args: { tenant: text, endpoint: text, why: optional(text) },
    reply: oneOf([undefined, false, true], -1),
  }),

  /** Reads the state of an endpoint. */
  look: shapeScript({
    name: "webhooks/endpoints/endpoints-look",
    keys: hookKeys("health", "log", "line"),
    args: { prefix: from(baseOf), key: text, most: int },
    reply: {
      leftAloneForMs: int,
      /** When the endpoint started to fail, in ms since 1970. 0 if it does not fail. */
      failingSinceMs: int,
      /** The number of attempts in a row that have failed. */
      failures: int,
      /** The number of attempts that ended in the last minute. */
      inLastMinute: int,
      /** The number of messages that are due. */
      waiting: int,
      last: rest(text),
    },
  }),

  /** Sets the limits of a tenant, as JSON. */
  setLimits: shapeScript({
    name: "webhooks/endpoints/limits-set",
    keys: hookKeys("limits", "limits:changed", "limits:version"),
    args: { key: text, limits: optional(text) },
  }),

  /** Ends the pause of a key in the sender's workers. */
  wake: shapeScript({
    name: "webhooks/endpoints/endpoints-wake",
    keys: hookKeys("limits:changed", "limits:version"),
    args: { key: from(({ key }: { readonly key: string }) => WOKEN + key) },
  }),

  /**
   * Removes the names of an expunged tenant and its endpoints from the list of changed limits. A
   * digest replaces them.
   */
  forgetLimits: shapeScript({
    name: "webhooks/endpoints/limits-forget",
    keys: hookKeys("limits:changed", "limits:version"),
    args: {
      digest: from(({ digest }: { readonly digest: string }) => FORGOTTEN + digest),
      names: rest(text),
    },
  }),

  /** Stores a message, unless the tenant already has a message with this id. */
  storeMessage: shapeScript({
    name: "webhooks/messages-store",
    bringsJobs: true,
    orderOf: (of: QueueName & MessageName & { readonly ordered: readonly string[] }) =>
      of.ordered.length === 0 ? undefined : hookKey("messages", of),
    keys: (of: QueueName & MessageName & { readonly ordered: readonly string[] }) => [
      ...hookKeys("message", "messages", "ends", "endpoints")(of),
      ...of.ordered.flatMap((endpoint) => lineKeys({ ...of, endpoint })),
    ],
    args: {
      message: text,
      type: text,
      body: text,
      endpoints: WORDS,
      keepMs: int,
      /** The endpoints that receive their messages in order. */
      ordered: WORDS,
      /**
       * A unique name for this message, which distinguishes it from earlier messages with the same
       * id.
       */
      copy: text,
    },
    reply: {
      atMs: int,
      isNew: flag,
      endpoints: WORDS,
      /** True if all jobs of the message were already stored. */
      isSent: flag,
      /** The ordered endpoints whose lines the message joined when it was new. */
      ordered: WORDS,
      copy: optional(text),
    },
  }),

  /**
   * Records that all jobs of a message are stored. Returns false if the message is no longer
   * stored.
   */
  noteSent: shapeScript({
    name: "webhooks/messages-sent",
    keys: hookKeys("message"),
    args: { copy: optional(text) },
    reply: flag,
  }),

  /** Removes one message, or the oldest messages of a tenant and finally the tenant. */
  expunge: shapeScript({
    name: "webhooks/messages-expunge",
    keys: hookKeys("messages", "ends", "endpoints", "ids", "disabled", "versions", "tenants"),
    args: {
      base: from(hookBase),
      tenant: text,
      encoded: from(({ tenant }: HookNames<"endpoints">) => encoded(tenant)),
      message: optional(text),
      most: constant(EXPUNGED_AT_ONCE),
    },
    reply: { removed: int, isDone: flag },
  }),

  /** Reads the data that attempts need, and whether they may begin. */
  beginAttempts: shapeScript({
    name: "webhooks/attempts-begin",
    keys: ({ attempts, ...queue }: QueueName & { readonly attempts: readonly AttemptName[] }) =>
      attempts.flatMap((attempt) =>
        hookKeys("endpoints", "disabled", "message", "health")({ ...queue, ...attempt }),
      ),
    args: {
      attempts: rest({
        endpoint: text,
        /**
         * The time limit for endpoints without their own time limit. 0 bypasses the circuit
         * breaker.
         */
        timeoutMs: int,
        born: partOf<string>("born"),
        copy: optional(text),
      }),
    },
    reply: list({
      record: optional(text),
      disabled: DISABLED,
      type: text,
      /** Undefined if the message is no longer stored. */
      body: optional(text),
      state: optional(text),
      /** How long the circuit breaker still blocks the endpoint; 0 if the attempt may begin. */
      waitMs: int,
      sentAtMs: int,
      nowMs: int,
      /** The `copy` of the message that is stored now. */
      copy: optional(text),
    }),
  }),

  /** Records finished attempts. */
  endAttempts: shapeScript({
    name: "webhooks/attempts-end",
    keys: ({ attempts, ...queue }: QueueName & { readonly attempts: readonly AttemptName[] }) =>
      attempts.flatMap((attempt) =>
        hookKeys(
          "message",
          "attempts",
          "log",
          "failed",
          "health",
          "disabled",
          "versions",
          "endpoints",
        )({ ...queue, ...attempt }),
      ),
    args: {
      keepMs: int,
      most: int,
      disableAfterMs: int,
      failures: int,
      openMs: int,
      mostOpenMs: int,
      attempts: rest({
        tenant: text,
        endpoint: text,
        message: text,
        entry: text,
        state: text,
        health: word<HealthSeen>(),
        /** The pause that the endpoint's response requests, in ms. */
        slowMs: int,
        /** The reason to disable the endpoint immediately. Undefined to leave it enabled. */
        disable: optional(text),
        /**
         * When the endpoint was last changed before the attempt. If it has changed since, the
         * attempt does not affect it.
         */
        changedAtMs: partOf<number>("changedAtMs"),
        copy: optional(text),
      }),
    },
    reply: list({
      waitMs: int,
      /** `"gone"`: the endpoint was removed during the attempt. */
      event: optional(word<"recovered" | "failing" | "disabled" | "gone">()),
      /** When the endpoint started to fail, in ms since 1970. 0 if it does not fail. */
      failingSinceMs: int,
    }),
  }),

  /**
   * Appends messages to the line of an ordered endpoint. Returns the next step, or undefined if the endpoint was
   * removed.
   */
  joinLine: shapeScript({
    name: "webhooks/lines/line-join",
    bringsJobs: true,
    keys: hookKeys("line", "line:state", "endpoints"),
    args: { endpoint: text, entries: rest(LINE_ENTRY) },
    reply: optional(text),
  }),

  /**
   * Reads the messages that a step sends. Returns undefined if another step is next, or the
   * endpoint was removed.
   */
  beginStep: shapeScript({
    name: "webhooks/lines/line-begin",
    keys: hookKeys("endpoints", "disabled", "health", "line", "line:state"),
    args: {
      endpoint: text,
      step: text,
      most: int,
      mostBytes: constant(MOST_BATCH_BYTES),
      timeoutMs: int,
      messages,
    },
    decode: (reply) =>
      (reply as readonly unknown[]).length === 0 ? undefined : BEGUN_LINE.read(reply),
  }),

  /**
   * Ends a step. Returns the next step if messages are pending and no other process had already
   * ended this step.
   */
  endStep: shapeScript({
    name: "webhooks/lines/line-step",
    keys: lineKeys,
    args: {
      step: text,
      /** The number of messages to remove from the line. */
      leaving: int,
      /** The number of the next attempt. */
      attempt: int,
    },
    reply: optional(text),
  }),

  /** Stores a broadcast, unless a broadcast with this id exists. */
  beginBroadcast: shapeScript({
    name: "webhooks/broadcasts-begin",
    bringsJobs: true,
    keys: hookKeys("broadcast"),
    args: {
      type: text,
      body: text,
      /** The tenants that receive the broadcast, in order. Undefined for all tenants. */
      named: NAMED,
      keepMs: int,
    },
    reply: { isNew: flag, type: text, body: text, named: NAMED, ...BROADCAST_STATE },
  }),

  /** Records the progress of a broadcast, unless another process has recorded further progress. */
  advanceBroadcast: shapeScript({
    name: "webhooks/broadcasts-advance",
    keys: hookKeys("broadcast"),
    args: { from: text, to: text, isDone: flag, tenants: int, endpoints: int },
    // An empty reply means that Redis has lost the broadcast. The caller then continues with its
    // own state.
    decode: (reply, { to, isDone, tenants, endpoints }): BroadcastState =>
      (reply as readonly unknown[]).length === 0
        ? { cursor: to, isDone, tenants, endpoints }
        : readerOf(BROADCAST_STATE).read(reply),
  }),
};
