import type {
  AttemptName,
  AttemptNoted,
  BegunAttempt,
  Disabled,
  EndedAttempt,
  EndRules,
  EndpointName,
  EndpointSeen,
  MessageCopy,
  MessageStored,
  NewMessage,
  PutRequest,
} from "../../../../core/stores/webhooks/store.ts";
import { baseOf, encoded, type QueueName } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";
import { lineKeys, webhookKeys } from "./keys.ts";

const PUT = { "1": "stored", "0": "changed", "-1": "too-many" } as const;

export const endpointsPut: Script<QueueName & PutRequest, (typeof PUT)[keyof typeof PUT]> =
  defineScript({
    name: "webhooks/endpoints/endpoints-put",
    keys: (input) => recordKeys(input),
    args: ({ tenant, endpoint, record, before = "", most, key, limits = "" }) => [
      tenant,
      endpoint,
      record,
      before,
      most,
      key,
      limits,
    ],
    bringsJobs: true,
    decode: (reply) => PUT[String(reply) as keyof typeof PUT],
  });

const REMOVED = ["missing", "removed", "more"] as const;
/** How many messages leave the line of an ordered endpoint at a time: Redis serves no other request meanwhile. */
const REMOVED_AT_ONCE = 1_000;

export const endpointsRemove: Script<
  QueueName & EndpointName & { key: string },
  (typeof REMOVED)[number]
> = defineScript({
  name: "webhooks/endpoints/endpoints-remove",
  keys(input) {
    const keys = webhookKeys(input);
    return [
      ...recordKeys(input),
      keys.tenant("disabled", input.tenant),
      keys.endpoint("health", input),
      keys.endpoint("log", input),
      keys.endpoint("failed", input),
      ...lineKeys(input),
    ];
  },
  args: ({ key, ...name }) => [
    name.tenant,
    name.endpoint,
    key,
    webhookKeys(name).message("message", { ...name, message: "" }),
    REMOVED_AT_ONCE,
  ],
  decode: (reply) => REMOVED[Number(reply)]!,
});

export const limitsSet: Script<QueueName & { key: string; limits: string | undefined }, void> =
  defineScript({
    name: "webhooks/endpoints/limits-set",
    keys(input) {
      const keys = webhookKeys(input);
      return [keys.all("limits"), keys.all("limits:changed"), keys.all("limits:version")];
    },
    args: ({ key, limits = "" }) => [key, limits],
    decode: () => undefined,
  });

/** Before a key among those of changed limits: it is to be woken. No tenant's name begins so. */
export const WOKEN = "!";

export const endpointsWake: Script<QueueName & { readonly key: string }, void> = defineScript({
  name: "webhooks/endpoints/endpoints-wake",
  keys(input) {
    const keys = webhookKeys(input);
    return [keys.all("limits:changed"), keys.all("limits:version")];
  },
  args: ({ key }) => [WOKEN + key],
  decode: () => undefined,
});

/** Before the digest of an expunged tenant among the keys of changed limits. No tenant's name begins so. */
export const FORGOTTEN = "*";

export const limitsForget: Script<
  QueueName & { readonly digest: string; readonly names: readonly string[] },
  void
> = defineScript({
  name: "webhooks/endpoints/limits-forget",
  keys(input) {
    const keys = webhookKeys(input);
    return [keys.all("limits:changed"), keys.all("limits:version")];
  },
  args: ({ digest, names }) => [FORGOTTEN + digest, ...names],
  decode: () => undefined,
});

export const endpointsEnable: Script<
  QueueName & EndpointName & { why: string | undefined },
  boolean | undefined
> = defineScript({
  name: "webhooks/endpoints/endpoints-enable",
  keys(input) {
    const keys = webhookKeys(input);
    const { tenant } = input;
    return [
      keys.tenant("endpoints", tenant),
      keys.all("versions"),
      keys.tenant("disabled", tenant),
      keys.endpoint("health", input),
    ];
  },
  args: ({ tenant, endpoint, why = "" }) => [tenant, endpoint, why],
  decode: (reply) => (reply === -1 ? undefined : reply === 1),
});

export const endpointsLook: Script<
  QueueName & EndpointName & { readonly key: string; readonly most: number },
  Omit<EndpointSeen, "attempts"> & { readonly last: readonly string[] }
> = defineScript({
  name: "webhooks/endpoints/endpoints-look",
  keys(input) {
    const keys = webhookKeys(input);
    return [
      keys.endpoint("health", input),
      keys.endpoint("log", input),
      keys.endpoint("line", input),
    ];
  },
  args: ({ key, most, ...name }) => [baseOf(name), key, most],
  decode(reply) {
    const [leftAloneForMs, failingSinceMs, failures, inLastMinute, waiting, ...last] = reply as [
      number,
      number,
      number,
      number,
      number,
      ...string[],
    ];
    return { leftAloneForMs, failingSinceMs, failures, inLastMinute, waiting, last };
  },
});

export const messagesStore: Script<QueueName & NewMessage, MessageStored> = defineScript({
  name: "webhooks/messages-store",
  keys(input) {
    const keys = webhookKeys(input);
    const { tenant } = input;
    return [
      keys.message("message", input),
      keys.tenant("messages", tenant),
      keys.tenant("ends", tenant),
      keys.tenant("endpoints", tenant),
      ...input.ordered.flatMap((endpoint) => lineKeys({ ...input, endpoint })),
    ];
  },
  args: ({ message, type, body, endpoints, keepMs, ordered, copy }) => [
    message,
    type,
    body,
    endpoints.join(" "),
    keepMs,
    ordered.join(" "),
    copy,
  ],
  bringsJobs: true,
  decode(reply) {
    const [atMs, isNew, endpoints, isSent, ordered, copy] = reply as [
      number,
      number,
      string,
      number,
      string,
      string,
    ];
    return {
      atMs,
      isNew: isNew === 1,
      endpoints: wordsOf(endpoints),
      isSent: isSent === 1,
      ordered: wordsOf(ordered),
      copy: given(copy),
    };
  },
});

export const messagesSent: Script<QueueName & MessageCopy, boolean> = defineScript({
  name: "webhooks/messages-sent",
  keys: (input) => [webhookKeys(input).message("message", input)],
  args: ({ copy = "" }) => [copy],
  decode: (reply) => reply === 1,
});

/** How many messages are removed at a time: Redis serves no other request meanwhile. */
const EXPUNGED_AT_ONCE = 100;

/** Without a message, some of the tenant's. */
export const messagesExpunge: Script<
  QueueName & { readonly tenant: string; readonly message?: string },
  { readonly removed: number; readonly isDone: boolean }
> = defineScript({
  name: "webhooks/messages-expunge",
  keys(input) {
    const keys = webhookKeys(input);
    const { tenant } = input;
    return [
      keys.tenant("messages", tenant),
      keys.tenant("ends", tenant),
      keys.tenant("endpoints", tenant),
      keys.tenant("ids", tenant),
      keys.tenant("disabled", tenant),
      keys.all("versions"),
      keys.all("tenants"),
    ];
  },
  args: (input) => [
    webhookKeys(input).base,
    input.tenant,
    encoded(input.tenant),
    input.message ?? "",
    EXPUNGED_AT_ONCE,
  ],
  decode(reply) {
    const [removed, isDone] = reply as [number, number];
    return { removed, isDone: isDone === 1 };
  },
});

export const attemptsBegin: Script<
  QueueName & { readonly attempts: readonly BeginRequest[] },
  BegunAttempt[]
> = defineScript({
  name: "webhooks/attempts-begin",
  keys(input) {
    const keys = webhookKeys(input);
    return input.attempts.flatMap((attempt) => [
      keys.tenant("endpoints", attempt.tenant),
      keys.tenant("disabled", attempt.tenant),
      keys.message("message", attempt),
      keys.endpoint("health", attempt),
    ]);
  },
  args: ({ attempts }) =>
    attempts.flatMap(({ endpoint, timeoutMs, born, copy = "" }) => [
      endpoint,
      timeoutMs,
      born === undefined ? "" : `"born":${JSON.stringify(born)}`,
      copy,
    ]),
  decode: (reply) => (reply as BegunReply[]).map(readBegun),
});

/** One attempt that wants to begin. */
export type BeginRequest = AttemptName & { readonly timeoutMs: number };

type BegunReply = [
  record: string,
  disabled: string,
  type: string,
  body: string,
  state: string,
  waitMs: number,
  sentAtMs: number,
  nowMs: number,
  copy: string,
];

function readBegun(reply: BegunReply): BegunAttempt {
  const [record, disabled, type, body, state, waitMs, sentAtMs, nowMs, copy] = reply;
  return {
    record: given(record),
    disabled: disabled === "" ? undefined : readDisabled(disabled),
    type,
    body: type === "" ? undefined : body,
    state: given(state),
    waitMs,
    sentAtMs,
    nowMs,
    copy: given(copy),
  };
}

export const attemptsEnd: Script<
  QueueName & { readonly rules: EndRules; readonly attempts: readonly EndedAttempt[] },
  AttemptNoted[]
> = defineScript({
  name: "webhooks/attempts-end",
  keys(input) {
    const keys = webhookKeys(input);
    return input.attempts.flatMap((attempt) => [
      keys.message("message", attempt),
      keys.message("attempts", attempt),
      keys.endpoint("log", attempt),
      keys.endpoint("failed", attempt),
      keys.endpoint("health", attempt),
      keys.tenant("disabled", attempt.tenant),
      keys.all("versions"),
      keys.tenant("endpoints", attempt.tenant),
    ]);
  },
  args: ({ rules, attempts }) => [
    rules.keepMs,
    rules.most,
    rules.disableAfterMs,
    rules.failures,
    rules.openMs,
    rules.mostOpenMs,
    ...attempts.flatMap((attempt) => [
      attempt.tenant,
      attempt.endpoint,
      attempt.message,
      attempt.entry,
      attempt.state,
      attempt.health,
      attempt.slowMs,
      attempt.disable ?? "",
      `"changedAtMs":${attempt.changedAtMs}`,
      attempt.copy ?? "",
    ]),
  ],
  decode: (reply) =>
    (reply as [number, string, number][]).map(([waitMs, event, failingSinceMs]) => {
      return { waitMs, event: given(event) as AttemptNoted["event"], failingSinceMs };
    }),
});

function recordKeys(input: QueueName & EndpointName): readonly string[] {
  const keys = webhookKeys(input);
  const { tenant } = input;
  return [
    keys.tenant("endpoints", tenant),
    keys.tenant("ids", tenant),
    keys.all("versions"),
    keys.all("limits"),
    keys.all("limits:changed"),
    keys.all("limits:version"),
    keys.all("tenants"),
  ];
}

/** A time, and the reason behind it. */
export function readDisabled(text: string): Disabled {
  const space = text.indexOf(" ");
  return { atMs: Number(text.slice(0, space)), why: text.slice(space + 1) };
}

export function wordsOf(text: string): string[] {
  return text === "" ? [] : text.split(" ");
}

/** What is not there is empty. */
export function given(text: string): string | undefined {
  return text === "" ? undefined : text;
}
