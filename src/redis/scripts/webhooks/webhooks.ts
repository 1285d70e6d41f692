import type {
  AttemptNoted,
  BegunAttempt,
  Disabled,
  EndedAttempt,
  EndpointName,
  MessageName,
  MessageStored,
  NewMessage,
  PutRequest,
} from "../../../core/stores/webhooks/store.ts";
import type { QueueName } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";
import { webhookKeys } from "./keys.ts";

const PUT = { "1": "stored", "0": "changed", "-1": "too-many" } as const;

export const endpointsPut: Script<QueueName & PutRequest, (typeof PUT)[keyof typeof PUT]> =
  defineScript({
    name: "webhooks/endpoints-put",
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

export const endpointsRemove: Script<QueueName & EndpointName & { key: string }, boolean> =
  defineScript({
    name: "webhooks/endpoints-remove",
    keys(input) {
      const keys = webhookKeys(input);
      return [
        ...recordKeys(input),
        keys.tenant("disabled", input.tenant),
        keys.endpoint("health", input),
        keys.endpoint("log", input),
        keys.endpoint("failed", input),
      ];
    },
    args: ({ tenant, endpoint, key }) => [tenant, endpoint, key],
    decode: (reply) => reply === 1,
  });

export const limitsSet: Script<QueueName & { key: string; limits: string | undefined }, void> =
  defineScript({
    name: "webhooks/limits-set",
    keys(input) {
      const keys = webhookKeys(input);
      return [keys.all("limits"), keys.all("limits:changed"), keys.all("limits:version")];
    },
    args: ({ key, limits = "" }) => [key, limits],
    decode: () => undefined,
  });

export const endpointsEnable: Script<
  QueueName & EndpointName & { why: string | undefined },
  boolean | undefined
> = defineScript({
  name: "webhooks/endpoints-enable",
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

export const messagesStore: Script<QueueName & NewMessage, MessageStored> = defineScript({
  name: "webhooks/messages-store",
  keys(input) {
    const keys = webhookKeys(input);
    const { tenant } = input;
    return [
      keys.message("message", input),
      keys.tenant("messages", tenant),
      keys.tenant("ends", tenant),
    ];
  },
  args: ({ message, type, body, endpoints, keepMs }) => [
    message,
    type,
    body,
    endpoints.join(" "),
    keepMs,
  ],
  bringsJobs: true,
  decode(reply) {
    const [atMs, isNew, endpoints, isSent] = reply as [number, number, string, number];
    return { atMs, isNew: isNew === 1, endpoints: wordsOf(endpoints), isSent: isSent === 1 };
  },
});

export const attemptsBegin: Script<
  QueueName & EndpointName & MessageName & { probeMs: number },
  BegunAttempt
> = defineScript({
  name: "webhooks/attempts-begin",
  keys(input) {
    const keys = webhookKeys(input);
    const { tenant } = input;
    return [
      keys.tenant("endpoints", tenant),
      keys.tenant("disabled", tenant),
      keys.message("message", input),
      keys.endpoint("health", input),
    ];
  },
  args: ({ endpoint, probeMs }) => [endpoint, probeMs],
  decode(reply) {
    const [record, disabled, type, body, state, waitMs, sentAtMs, nowMs] = reply as [
      string,
      string,
      string,
      string,
      string,
      number,
      number,
      number,
    ];
    return {
      record: given(record),
      disabled: disabled === "" ? undefined : readDisabled(disabled),
      type,
      body: type === "" ? undefined : body,
      state: given(state),
      waitMs,
      sentAtMs,
      nowMs,
    };
  },
});

export const attemptsEnd: Script<QueueName & EndedAttempt, AttemptNoted> = defineScript({
  name: "webhooks/attempts-end",
  keys(input) {
    const keys = webhookKeys(input);
    const { tenant } = input;
    return [
      keys.message("message", input),
      keys.message("attempts", input),
      keys.endpoint("log", input),
      keys.endpoint("failed", input),
      keys.endpoint("health", input),
      keys.tenant("disabled", tenant),
      keys.all("versions"),
      keys.tenant("endpoints", tenant),
    ];
  },
  args: (input) => [
    input.tenant,
    input.endpoint,
    input.message,
    input.entry,
    input.state,
    input.keepMs,
    input.most,
    input.health,
    input.disableAfterMs,
    input.failures,
    input.openMs,
    input.mostOpenMs,
    input.slowMs,
    input.disable ?? "",
  ],
  decode(reply) {
    const [waitMs, event, failingSinceMs] = reply as [number, string, number];
    return { waitMs, event: given(event) as AttemptNoted["event"], failingSinceMs };
  },
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

function given(text: string): string | undefined {
  return text === "" ? undefined : text;
}
