import type {
  BegunLine,
  EndedStep,
  EndpointName,
  LineEntry,
  LineMessage,
} from "../../../../core/stores/webhooks/store.ts";
import type { QueueName } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";
import { lineKeys, webhookKeys } from "./keys.ts";
import { given, readDisabled } from "./webhooks.ts";

/** Joins a line; the step that is next. Undefined if the endpoint was removed. */
export const lineJoin: Script<
  QueueName & EndpointName & { entries: readonly LineEntry[] },
  string | undefined
> = defineScript({
  name: "webhooks/lines/line-join",
  keys: (input) => [...lineKeys(input), webhookKeys(input).tenant("endpoints", input.tenant)],
  args: ({ endpoint, entries }) => [
    endpoint,
    ...entries.map(({ purpose, message, by }) => [purpose, message, by ?? ""].join(" ").trimEnd()),
  ],
  bringsJobs: true,
  decode: (reply) => given(reply as string),
});

/** Of each message. */
const FIELDS_EACH = 6;
/** How much of a line goes together, in bytes: as much as one message may have, and its own words. */
const MOST_BYTES = 300_000;

export const lineBegin: Script<
  QueueName & EndpointName & { step: string; most: number; timeoutMs: number },
  BegunLine | undefined
> = defineScript({
  name: "webhooks/lines/line-begin",
  keys(input) {
    const keys = webhookKeys(input);
    const { tenant } = input;
    return [
      keys.tenant("endpoints", tenant),
      keys.tenant("disabled", tenant),
      keys.endpoint("health", input),
      ...lineKeys(input),
    ];
  },
  args: (input) => [
    input.endpoint,
    input.step,
    input.most,
    MOST_BYTES,
    input.timeoutMs,
    webhookKeys(input).message("message", { tenant: input.tenant, message: "" }),
  ],
  decode(reply) {
    const fields = reply as readonly (string | number)[];
    if (fields.length === 0) return undefined;
    const [record, disabled, waitMs, nowMs, attempt, purpose, by] = fields as [
      string,
      string,
      number,
      number,
      number,
      LineEntry["purpose"],
      string,
    ];
    const messages: LineMessage[] = [];
    for (let at = 7; at < fields.length; at += FIELDS_EACH) {
      const [message, atMs, type, body, state, copy] = fields.slice(at, at + FIELDS_EACH) as [
        string,
        number,
        string,
        string,
        string,
        string,
      ];
      const kept = type === "" ? undefined : body;
      messages.push({ message, atMs, type, body: kept, state, copy: given(copy) });
    }
    return {
      record,
      disabled: disabled === "" ? undefined : readDisabled(disabled),
      waitMs,
      nowMs,
      attempt,
      purpose,
      by: given(by),
      messages,
    };
  },
});

/** Ends a step; the one that is next, if there is any. */
export const lineStep: Script<QueueName & EndedStep, string | undefined> = defineScript({
  name: "webhooks/lines/line-step",
  keys: (input) => lineKeys(input),
  args: ({ step, leaving, attempt }) => [step, leaving, attempt],
  decode: (reply) => given(reply as string),
});
