import { baseOf, encoded, type QueueName } from "../keys.ts";

/** Each key of a sender of webhooks, and the names that follow it: `<prefix>:{<queue>}:hooks:health:<tenant>:<endpoint>`. */
const NAMES = {
  versions: [],
  tenants: [],
  limits: [],
  "limits:changed": [],
  "limits:version": [],
  endpoints: ["tenant"],
  ids: ["tenant"],
  disabled: ["tenant"],
  messages: ["tenant"],
  ends: ["tenant"],
  health: ["tenant", "endpoint"],
  log: ["tenant", "endpoint"],
  failed: ["tenant", "endpoint"],
  line: ["tenant", "endpoint"],
  "line:state": ["tenant", "endpoint"],
  message: ["tenant", "message"],
  attempts: ["tenant", "message"],
  broadcast: ["id"],
} as const satisfies Readonly<Record<string, readonly string[]>>;

type HookKey = keyof typeof NAMES;

/** The names that follow a key, or all of several keys. */
export type HookNames<Key extends HookKey> = Readonly<Record<(typeof NAMES)[Key][number], string>>;

/** The beginning of all keys of a sender, except for those of its queue. */
export function hookBase(queue: QueueName): string {
  return `${baseOf(queue)}hooks:`;
}

export function hookKey<Key extends HookKey>(key: Key, of: QueueName & HookNames<Key>): string {
  const names = NAMES[key].map((name) => `:${encoded((of as Record<string, string>)[name]!)}`);
  return hookBase(of) + key + names.join("");
}

/** Makes the keys with these names. */
export function hookKeys<Key extends HookKey>(
  ...keys: readonly Key[]
): (of: QueueName & HookNames<Key>) => readonly string[] {
  return (of) => keys.map((key) => hookKey(key, of));
}
