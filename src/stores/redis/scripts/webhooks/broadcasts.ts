import type {
  BegunBroadcast,
  BroadcastAdvance,
  BroadcastState,
  NewBroadcast,
} from "../../../../core/stores/webhooks/store.ts";
import type { QueueName } from "../keys.ts";
import { defineScript, type Script } from "../script.ts";
import { webhookKeys } from "./keys.ts";
import { wordsOf } from "./webhooks.ts";

/** Stands for all tenants; none has this name. */
const ALL = "*";

export const broadcastsBegin: Script<QueueName & NewBroadcast, BegunBroadcast> = defineScript({
  name: "webhooks/broadcasts-begin",
  keys: (input) => [webhookKeys(input).broadcast(input.id)],
  args: ({ type, body, named, keepMs }) => [type, body, named?.join(" ") ?? ALL, keepMs],
  bringsJobs: true,
  decode(reply) {
    const [isNew, type, body, named, ...state] = reply as [
      number,
      string,
      string,
      string,
      ...string[],
    ];
    return {
      isNew: isNew === 1,
      type,
      body,
      named: named === ALL ? undefined : wordsOf(named),
      ...readState(state),
    };
  },
});

export const broadcastsAdvance: Script<QueueName & BroadcastAdvance, BroadcastState> = defineScript(
  {
    name: "webhooks/broadcasts-advance",
    keys: (input) => [webhookKeys(input).broadcast(input.id)],
    args: ({ from, to, isDone, tenants, endpoints }) => [
      from,
      to,
      isDone ? 1 : 0,
      tenants,
      endpoints,
    ],
    // If Redis has forgotten it since, this call goes on with what it knows.
    decode: (reply, input) =>
      (reply as string[]).length === 0
        ? { ...input, cursor: input.to }
        : readState(reply as string[]),
  },
);

function readState(fields: readonly string[]): BroadcastState {
  const [cursor, done, tenants, endpoints] = fields as [string, string, string, string];
  return {
    cursor,
    isDone: done === "1",
    tenants: Number(tenants),
    endpoints: Number(endpoints),
  };
}
