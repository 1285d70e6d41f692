import type {
  BegunLine,
  EndedStep,
  EndpointName,
  LineEntry,
  LineMessage,
} from "../../../core/stores/webhooks/store.ts";
import type { QueueName } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";
import { lineKeys, webhookKeys } from "./keys.ts";
import { given, readDisabled } from "./webhooks.ts";

/** Joins a line; the step that is next. */
export const lineJoin: Script<
  QueueName & EndpointName & { entries: readonly LineEntry[] },
  string
> = defineScript({
  name: "webhooks/lines/line-join",
  keys: (input) => lineKeys(input),
  args: ({ entries }) =>
    entries.map(({ purpose, message, by }) => [purpose, message, by ?? ""].join(" ").trimEnd()),
  bringsJobs: true,
  decode: (reply) => reply as string,
});

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
    for (let at = 7; at < fields.length; at += 5) {
      const [message, atMs, type, body, state] = fields.slice(at, at + 5) as [
        string,
        number,
        string,
        string,
        string,
      ];
      messages.push({ message, atMs, type, body: type === "" ? undefined : body, state });
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
