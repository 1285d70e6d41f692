/** Scripts of a sender of webhooks: its endpoints, messages, attempts, ordered lines and broadcasts. */
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

/** One message. A new message can have the id of an expired one; `copy` distinguishes the two. */
export interface MessageCopy extends MessageName {
  /** Undefined for a message that an older version has stored. */
  readonly copy: string | undefined;
}

/** One attempt of a message at an endpoint. */
export interface AttemptName extends EndpointName, MessageCopy {
  /** Identifies the endpoint among all that ever had its name. Undefined in jobs of older versions. */
  readonly born?: string | undefined;
}

export interface Disabled {
  readonly atMs: number;
  /** `"failing"`, `"gone"`, or an operator's reason. */
  readonly why: string;
}

/** Names, separated by spaces. */
export const WORDS: Shape<readonly string[]> = {
  read: (stored) => (stored === "" ? [] : String(stored).split(" ")),
  write: (words) => words.join(" "),
};

/** Reads a time and the reason after it. */
export const DISABLED: Reader<Disabled | undefined> = {
  read(stored) {
    const [atMs, ...words] = optional(WORDS).read(stored) ?? [];
    return atMs === undefined ? undefined : { atMs: Number(atMs), why: words.join(" ") };
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
  /** The last tenant that got it; empty at first. */
  cursor: text,
  isDone: flag,
  tenants: int,
  endpoints: int,
};
export type BroadcastState = Read<typeof BROADCAST_STATE>;

/** Stands for all tenants. No tenant has this name. */
const ALL = "*";
const NAMED: Shape<readonly string[] | undefined> = {
  read: (stored) => (stored === ALL ? undefined : WORDS.read(stored)),
  write: (named) => (named === undefined ? ALL : WORDS.write(named)),
};

/** What an attempt reveals about the health of its endpoint. */
export type HealthSeen = "ok" | "bad" | "same";

/** A part of an endpoint's record, by which a script recognizes it. */
const partOf = <Value extends string | number>(field: string) =>
  optional(written((value: Value) => `"${field}":${JSON.stringify(value)}`));

/**
 * The list of changed limits holds encoded keys. An entry with this prefix asks workers to wake the key that follows it. No
 * tenant's name begins with this prefix.
 */
export const WOKEN = "!";
/** In the same list, an entry with this prefix holds the digest of an expunged tenant. */
export const FORGOTTEN = "*";

/** The most messages that one script removes, because Redis serves no other request during a script. */
const EXPUNGED_AT_ONCE = 100;
/** The most messages that one script removes from the queue of an ordered endpoint. */
const REMOVED_AT_ONCE = 1_000;
/** The most bytes in one batch: as many as one message may have. */
const MOST_BATCH_BYTES = 300_000;

/** The beginning of the keys of a tenant's messages. */
const messages = from((of: QueueName & HookNames<"endpoints">) =>
  hookKey("message", { ...of, message: "" }),
);

const lineKeys = hookKeys("line", "line:state");

export const hookScripts = {
  /** Stores an endpoint, unless another process has changed it since it was read. */
  put: shapeScript({
    name: "webhooks/endpoints/endpoints-put",
    bringsJobs: true,
    keys: hookKeys(
      "endpoints",
      "ids",
      "versions",
      "limits",
      "limits:changed",
      "limits:version",
      "tenants",
    ),
    args: {
      tenant: text,
      endpoint: text,
      record: text,
      /** The record that was read; undefined for a new endpoint. */
      before: optional(text),
      /** The most endpoints of a tenant. */
      most: int,
      key: text,
      /** Its own limits, as JSON. */
      limits: optional(text),
    },
    reply: oneOf(["too-many", "changed", "stored"], -1),
  }),

  /** Removes an endpoint, or first a part of its line. */
  remove: shapeScript({
    name: "webhooks/endpoints/endpoints-remove",
    keys: hookKeys(
      "endpoints",
      "ids",
      "versions",
      "limits",
      "limits:changed",
      "limits:version",
      "tenants",
      "disabled",
      "health",
      "log",
      "failed",
      "line",
      "line:state",
    ),
    args: {
      tenant: text,
      endpoint: text,
      key: text,
      messages,
      most: constant(REMOVED_AT_ONCE),
    },
    reply: oneOf(["missing", "removed", "more"]),
  }),

  /** Disables an endpoint for a reason, or enables it without one. Returns undefined if it does not exist. */
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
      /** In ms since 1970; 0 if it does not fail. */
      failingSinceMs: int,
      /** How many attempts in a row have failed. */
      failures: int,
      /** How many attempts ended in the last minute. */
      inLastMinute: int,
      /** How many messages are due. */
      waiting: int,
      last: rest(text),
    },
  }),

  /** Sets the own limits of a tenant, as JSON. */
  setLimits: shapeScript({
    name: "webhooks/endpoints/limits-set",
    keys: hookKeys("limits", "limits:changed", "limits:version"),
    args: { key: text, limits: optional(text) },
  }),

  /** Ends the pause of a key in the workers of the sender. */
  wake: shapeScript({
    name: "webhooks/endpoints/endpoints-wake",
    keys: hookKeys("limits:changed", "limits:version"),
    args: { key: from(({ key }: { readonly key: string }) => WOKEN + key) },
  }),

  /** Replaces the names of an expunged tenant and its endpoints in the list of changed limits by a digest. */
  forgetLimits: shapeScript({
    name: "webhooks/endpoints/limits-forget",
    keys: hookKeys("limits:changed", "limits:version"),
    args: {
      digest: from(({ digest }: { readonly digest: string }) => FORGOTTEN + digest),
      names: rest(text),
    },
  }),

  /** Stores a message, unless its tenant has one with this id. */
  storeMessage: shapeScript({
    name: "webhooks/messages-store",
    bringsJobs: true,
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
      /** A name that no other message has. */
      copy: text,
    },
    reply: {
      atMs: int,
      isNew: flag,
      endpoints: WORDS,
      /** Whether all of its jobs were already stored. */
      isSent: flag,
      /** The endpoints whose lines it joined when it was new. */
      ordered: WORDS,
      copy: optional(text),
    },
  }),

  /** Notes that all jobs of a message are stored. Returns false if the message is no longer stored. */
  noteSent: shapeScript({
    name: "webhooks/messages-sent",
    keys: hookKeys("message"),
    args: { copy: optional(text) },
    reply: flag,
  }),

  /** Removes one message, or the oldest ones of a tenant and finally the tenant. */
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

  /** Reads what attempts need, and whether they may begin. */
  beginAttempts: shapeScript({
    name: "webhooks/attempts-begin",
    keys: ({ attempts, ...queue }: QueueName & { readonly attempts: readonly AttemptName[] }) =>
      attempts.flatMap((attempt) =>
        hookKeys("endpoints", "disabled", "message", "health")({ ...queue, ...attempt }),
      ),
    args: {
      attempts: rest({
        endpoint: text,
        /** The time limit for endpoints without their own; 0 bypasses the circuit breaker. */
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
      /** The copy of the message that is stored now. */
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
        /** The pause that the endpoint asks for. */
        slowMs: int,
        /** Why it is disabled at once. */
        disable: optional(text),
        /** When the endpoint was last changed before the attempt: a later endpoint is not affected. */
        changedAtMs: partOf<number>("changedAtMs"),
        copy: optional(text),
      }),
    },
    reply: list({
      waitMs: int,
      /** `"gone"`: the endpoint was removed during the attempt. */
      event: optional(word<"recovered" | "failing" | "disabled" | "gone">()),
      /** In ms since 1970; 0 if the endpoint does not fail. */
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

  /** Reads what a step sends. Returns undefined if another step is next, or the endpoint was removed. */
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

  /** Ends a step. Returns the next one, if messages are pending and no other process had ended this step. */
  endStep: shapeScript({
    name: "webhooks/lines/line-step",
    keys: lineKeys,
    args: {
      step: text,
      /** How many messages to remove from the line. */
      leaving: int,
      /** The number of the next attempt. */
      attempt: int,
    },
    reply: optional(text),
  }),

  /** Stores a broadcast, unless one with this id exists. */
  beginBroadcast: shapeScript({
    name: "webhooks/broadcasts-begin",
    bringsJobs: true,
    keys: hookKeys("broadcast"),
    args: {
      type: text,
      body: text,
      /** The tenants that receive it, in order; undefined for all. */
      named: NAMED,
      keepMs: int,
    },
    reply: { isNew: flag, type: text, body: text, named: NAMED, ...BROADCAST_STATE },
  }),

  /** Notes the progress of a broadcast, unless another process has noted more. */
  advanceBroadcast: shapeScript({
    name: "webhooks/broadcasts-advance",
    keys: hookKeys("broadcast"),
    args: { from: text, to: text, isDone: flag, tenants: int, endpoints: int },
    // If Redis has lost the broadcast, the caller continues with its own state.
    decode: (reply, { to, isDone, tenants, endpoints }): BroadcastState =>
      (reply as readonly unknown[]).length === 0
        ? { cursor: to, isDone, tenants, endpoints }
        : readerOf(BROADCAST_STATE).read(reply),
  }),
};
