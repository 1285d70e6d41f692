import { tableOf, type Value } from "../../lua/runtime.ts";
import { globOf } from "../commands/arguments.ts";
import { writeReply } from "./resp.ts";

interface Subscriber {
  /** Sends bytes of the protocol. */
  send(bytes: string): void;
}

/** The channels and patterns that clients are subscribed to. */
export interface Subscriptions {
  /** Subscribes to each name, or unsubscribes, and confirms each to the subscriber. */
  change(how: string, subscriber: Subscriber, names: readonly string[]): void;
  /** Returns how many subscribers received the message. */
  readonly publish: (channel: string, message: string) => number;
  isSubscribed(subscriber: Subscriber): boolean;
  count(channel: string): number;
  channels(): string[];
  patternCount(): number;
  drop(subscriber: Subscriber): void;
}

type Names = Map<string, Set<Subscriber>>;

export function createSubscriptions(): Subscriptions {
  const channels: Names = new Map();
  const patterns: Names = new Map();

  function namesOf(table: Names, subscriber: Subscriber): string[] {
    return [...table].filter(([, all]) => all.has(subscriber)).map(([name]) => name);
  }

  function countOf(subscriber: Subscriber): number {
    return namesOf(channels, subscriber).length + namesOf(patterns, subscriber).length;
  }

  function remove(table: Names, name: string, subscriber: Subscriber): void {
    const all = table.get(name);
    all?.delete(subscriber);
    if (all?.size === 0) table.delete(name);
  }

  const send = (subscriber: Subscriber, parts: Value[]): void =>
    subscriber.send(writeReply(tableOf(parts)));

  return {
    change(how, subscriber, given) {
      const table = how.includes("psub") || how.includes("punsub") ? patterns : channels;
      const isEnd = how.includes("unsub");
      const own = namesOf(table, subscriber);
      const names: readonly Value[] =
        given.length > 0 || !isEnd ? given : own.length > 0 ? own : [false];
      for (const name of names) {
        if (typeof name === "string") {
          if (isEnd) remove(table, name, subscriber);
          else table.set(name, (table.get(name) ?? new Set()).add(subscriber));
        }
        send(subscriber, [how, name, countOf(subscriber)]);
      }
    },
    publish(channel, message) {
      let count = 0;
      for (const subscriber of channels.get(channel) ?? []) {
        send(subscriber, ["message", channel, message]);
        count += 1;
      }
      for (const [pattern, subscribers] of patterns) {
        if (!globOf(pattern).test(channel)) continue;
        for (const subscriber of subscribers) {
          send(subscriber, ["pmessage", pattern, channel, message]);
          count += 1;
        }
      }
      return count;
    },
    isSubscribed: (subscriber) => countOf(subscriber) > 0,
    count: (channel) => channels.get(channel)?.size ?? 0,
    channels: () => [...channels.keys()],
    patternCount: () => patterns.size,
    drop(subscriber) {
      for (const table of [channels, patterns]) {
        for (const name of namesOf(table, subscriber)) remove(table, name, subscriber);
      }
    },
  };
}
