import { baseOf, encoded, type QueueName } from "../keys.ts";

/**
 * Each Redis key of a webhook sender, with the names that follow it. Example:
 * `<prefix>:{<queue>}:hooks:health:<tenant>:<endpoint>`.
 */
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

/** The names that follow one key, or that follow any of several keys. */
export type HookNames<Key extends HookKey> = Readonly<Record<(typeof NAMES)[Key][number], string>>;

/** Returns the prefix of all Redis keys of a sender, except those of its queue. */
export function hookBase(queue: QueueName): string {
  return `${baseOf(queue)}hooks:`;
}

export function hookKey<Key extends HookKey>(key: Key, of: QueueName & HookNames<Key>): string {
  const names = NAMES[key].map((name) => `:${encoded((of as Record<string, string>)[name]!)}`);
  return hookBase(of) + key + names.join("");
}

/** Returns a function that creates the Redis keys in `keys` from the names in its input. */
export function hookKeys<Key extends HookKey>(
  ...keys: readonly Key[]
): (of: QueueName & HookNames<Key>) => readonly string[] {
  return (of) => keys.map((key) => hookKey(key, of));
}
