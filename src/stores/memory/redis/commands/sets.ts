import { tableOf, type Commands, type Value } from "../../lua/runtime.ts";
import type { Keyspace } from "../keyspace.ts";
import { bytesOf, integerOf, scanned } from "./arguments.ts";

export function setCommands({ membersAt, keep, dropIfEmpty }: Keyspace): Commands {
  function add(key: Value, members: readonly Value[]): number {
    const set = keep(key, membersAt(key), () => new Set<string>());
    const before = set.size;
    for (const member of members) set.add(bytesOf(member));
    return set.size - before;
  }

  function remove(key: Value, members: readonly Value[]): number {
    const set = membersAt(key);
    if (set === undefined) return 0;
    const before = set.size;
    for (const member of members) set.delete(bytesOf(member));
    dropIfEmpty(key, set.size);
    return before - set.size;
  }

  function some(key: Value, [count]: readonly Value[]): string[] {
    const all = [...(membersAt(key) ?? [])];
    return all.slice(0, count === undefined ? 1 : Math.abs(integerOf(count)));
  }

  return {
    SADD: (key, member, ...others) => add(key, [member, ...others]),
    SREM: (key, member, ...others) => remove(key, [member, ...others]),
    SCARD: (key) => membersAt(key)?.size ?? 0,
    SISMEMBER: (key, member) => (membersAt(key)?.has(bytesOf(member)) === true ? 1 : 0),
    SMISMEMBER(key, ...members) {
      const set = membersAt(key);
      return tableOf(members.map((member) => (set?.has(bytesOf(member)) === true ? 1 : 0)));
    },
    SMEMBERS: (key) => tableOf([...(membersAt(key) ?? [])]),
    SMOVE(from, to, member) {
      if (membersAt(from) !== undefined) membersAt(to);
      if (remove(from, [member]) === 0) return 0;
      add(to, [member]);
      return 1;
    },
    SPOP(key, ...count) {
      const popped = some(key, count);
      remove(key, popped);
      return count.length === 0 ? (popped[0] ?? false) : tableOf(popped);
    },
    SRANDMEMBER(key, ...count) {
      const found = some(key, count);
      return count.length === 0 ? (found[0] ?? false) : tableOf(found);
    },
    SUNION: (...keys) => tableOf([...new Set(keys.flatMap((key) => [...(membersAt(key) ?? [])]))]),
    SINTER(first, ...keys) {
      const others = keys.map((key) => membersAt(key));
      return tableOf(
        [...(membersAt(first) ?? [])].filter((each) => others.every((set) => set?.has(each))),
      );
    },
    SDIFF(first, ...keys) {
      const others = keys.map((key) => membersAt(key));
      return tableOf(
        [...(membersAt(first) ?? [])].filter((each) => !others.some((set) => set?.has(each))),
      );
    },
    SSCAN: (key, cursor, ...options) =>
      scanned(
        cursor,
        options,
        [...(membersAt(key) ?? [])].map((member) => [member]),
      ),
  };
}
