import { tableOf, type Commands, type Value } from "../../lua/runtime.ts";
import type { Keyspace } from "../keyspace.ts";
import { bytesOf, countOf, integerOf, OK, optionOf, sliceOf, syntaxError } from "./arguments.ts";

export function listCommands(keyspace: Keyspace): Commands {
  const { listAt, keep, dropIfEmpty } = keyspace;

  function push(key: Value, values: readonly Value[], isLeft: boolean): number {
    const list = keep(key, listAt(key), () => []);
    for (const value of values) {
      if (isLeft) list.unshift(bytesOf(value));
      else list.push(bytesOf(value));
    }
    return list.length;
  }

  function pop(key: Value, [count]: readonly Value[], isLeft: boolean): Value {
    const most = count === undefined ? 1 : countOf(count);
    const list = listAt(key);
    if (list === undefined) return false;
    const popped: string[] = [];
    while (popped.length < most && list.length > 0) {
      popped.push((isLeft ? list.shift() : list.pop())!);
    }
    dropIfEmpty(key, list.length);
    return count === undefined ? popped[0]! : tableOf(popped);
  }

  function move(from: Value, to: Value, isFromLeft: boolean, isToLeft: boolean): Value {
    // Fails before it takes an item, if the target is no list.
    if (listAt(from) !== undefined) listAt(to);
    const moved = pop(from, [], isFromLeft);
    if (moved !== false) push(to, [moved], isToLeft);
    return moved;
  }

  function replace(key: Value, list: string[], items: readonly string[]): void {
    list.length = 0;
    for (const item of items) list.push(item);
    dropIfEmpty(key, list.length);
  }

  return {
    LPUSH: (key, value, ...others) => push(key, [value, ...others], true),
    RPUSH: (key, value, ...others) => push(key, [value, ...others], false),
    LPUSHX: (key, value) => (listAt(key) === undefined ? 0 : push(key, [value], true)),
    RPUSHX: (key, value) => (listAt(key) === undefined ? 0 : push(key, [value], false)),
    LPOP: (key, ...count) => pop(key, count, true),
    RPOP: (key, ...count) => pop(key, count, false),
    RPOPLPUSH: (from, to) => move(from, to, false, true),
    LMOVE: (from, to, side, target) =>
      move(from, to, optionOf(side) === "LEFT", optionOf(target) === "LEFT"),
    LLEN: (key) => listAt(key)?.length ?? 0,
    LRANGE(key, from, to) {
      const list = listAt(key) ?? [];
      return tableOf(list.slice(...sliceOf(from, to, list.length)));
    },
    LINDEX: (key, index) => listAt(key)?.at(integerOf(index)) ?? false,
    LSET(key, index, value) {
      const list = listAt(key);
      if (list === undefined) throw new Error("ERR no such key");
      const given = integerOf(index);
      const at = given < 0 ? list.length + given : given;
      if (at < 0 || at >= list.length) throw new Error("ERR index out of range");
      list[at] = bytesOf(value);
      return OK;
    },
    LREM(key, count, value) {
      const list = listAt(key);
      if (list === undefined) return 0;
      const [wanted, unwanted] = [integerOf(count), bytesOf(value)];
      const most = wanted === 0 ? Infinity : Math.abs(wanted);
      let removed = 0;
      while (removed < most) {
        const at = wanted < 0 ? list.lastIndexOf(unwanted) : list.indexOf(unwanted);
        if (at < 0) break;
        list.splice(at, 1);
        removed += 1;
      }
      dropIfEmpty(key, list.length);
      return removed;
    },
    LTRIM(key, from, to) {
      const list = listAt(key);
      if (list !== undefined) replace(key, list, list.slice(...sliceOf(from, to, list.length)));
      return OK;
    },
    LINSERT(key, side, pivot, value) {
      const list = listAt(key);
      if (list === undefined) return 0;
      const at = list.indexOf(bytesOf(pivot));
      if (at < 0) return -1;
      list.splice(optionOf(side) === "BEFORE" ? at : at + 1, 0, bytesOf(value));
      return list.length;
    },
    LPOS(key, value, ...options) {
      let [rank, most, longest] = [1, undefined as number | undefined, 0];
      for (let at = 0; at < options.length; at += 2) {
        const name = optionOf(options[at]);
        const number = integerOf(options[at + 1]);
        if (name === "RANK") rank = number;
        else if (name === "COUNT") most = number;
        else if (name === "MAXLEN") longest = number;
        else throw syntaxError();
      }
      const list = listAt(key) ?? [];
      const wanted = bytesOf(value);
      const found: number[] = [];
      const looked = longest === 0 ? list.length : Math.min(longest, list.length);
      for (let step = 0, skipped = 1; step < looked; step++) {
        const at = rank < 0 ? list.length - 1 - step : step;
        if (list[at] !== wanted) continue;
        if (skipped < Math.abs(rank)) {
          skipped += 1;
          continue;
        }
        found.push(at);
        if (most === undefined || found.length === most) break;
      }
      return most === undefined ? (found[0] ?? false) : tableOf(found);
    },
  };
}
