import { digits, tableOf, type Commands, type Value } from "../../lua/runtime.ts";
import type { Keyspace } from "../keyspace.ts";
import { bytesOf, floatOf, integerOf, OK, optionOf, sliceOf, syntaxError } from "./arguments.ts";

/** The options of `SET` that an expiry follows. */
const EXPIRIES: ReadonlySet<string> = new Set(["PX", "EX", "PXAT", "EXAT"]);

export function stringCommands(keyspace: Keyspace): Commands {
  const { nowMs, textAt, put, find, keys, expiresAtMs } = keyspace;

  function add(key: Value, amount: number): number {
    const sum = integerOf(textAt(key) ?? 0) + amount;
    put(key, String(sum), expiresAtMs(key));
    return sum;
  }

  const commands: Commands = {
    GET: (key) => textAt(key) ?? false,
    MGET(first, ...names) {
      const found = [first, ...names].map((key) => {
        const content = find(key);
        return typeof content === "string" ? content : false;
      });
      return tableOf(found);
    },
    STRLEN: (key) => textAt(key)?.length ?? 0,
    GETRANGE(key, from, to) {
      const content = textAt(key) ?? "";
      if (integerOf(from) < 0 && integerOf(to) < integerOf(from)) return "";
      const [start, end] = sliceOf(from, to, content.length);
      // An end before the first byte counts as the first byte, as in Redis.
      return content.slice(start, Math.max(1, end));
    },
    SETRANGE(key, from, value) {
      const before = textAt(key) ?? "";
      const [start, part] = [Number(from), bytesOf(value)];
      const content =
        before.slice(0, start).padEnd(start, "\0") + part + before.slice(start + part.length);
      put(key, content, expiresAtMs(key));
      return content.length;
    },
    APPEND(key, value) {
      const content = (textAt(key) ?? "") + bytesOf(value);
      put(key, content, expiresAtMs(key));
      return content.length;
    },
    SET(key, value, ...options) {
      let untilMs: number | undefined;
      let [isNew, isOld, isGet] = [false, false, false];
      for (let at = 0; at < options.length; at += 1) {
        const name = optionOf(options[at]);
        if (name === "NX") isNew = true;
        else if (name === "XX") isOld = true;
        else if (name === "GET") isGet = true;
        else if (name === "KEEPTTL" && untilMs === undefined)
          untilMs = find(key) === undefined ? Infinity : expiresAtMs(key);
        else if (untilMs === undefined && name !== undefined && EXPIRIES.has(name)) {
          const ms = integerOf(options[(at += 1)]) * (name.startsWith("P") ? 1 : 1_000);
          if (ms <= 0) throw new Error("ERR invalid expire time in 'set' command");
          untilMs = name.endsWith("AT") ? ms : nowMs() + ms;
        } else throw syntaxError();
      }
      if (isNew && isOld) throw syntaxError();
      const before = isGet ? (textAt(key) ?? false) : false;
      const isThere = (isNew || isOld) && find(key) !== undefined;
      if ((isNew && isThere) || (isOld && !isThere)) return before;
      put(key, bytesOf(value), untilMs ?? Infinity);
      return isGet ? before : OK;
    },
    SETNX: (key, value) => (commands["SET"]!(key, value, "NX") === OK ? 1 : 0),
    SETEX: (key, seconds, value) => commands["SET"]!(key, value, "EX", seconds),
    PSETEX: (key, ms, value) => commands["SET"]!(key, value, "PX", ms),
    GETSET: (key, value) => commands["SET"]!(key, value, "GET"),
    GETDEL(key) {
      const found = textAt(key) ?? false;
      keys.delete(key as string);
      return found;
    },
    MSET(...pairs) {
      for (let at = 0; at < pairs.length; at += 2) put(pairs[at], bytesOf(pairs[at + 1]), Infinity);
      return OK;
    },
    INCR: (key) => add(key, 1),
    DECR: (key) => add(key, -1),
    INCRBY: (key, amount) => add(key, integerOf(amount)),
    DECRBY: (key, amount) => add(key, -integerOf(amount)),
    INCRBYFLOAT(key, amount) {
      const sum = digits(floatOf(textAt(key) ?? 0) + floatOf(amount), 17);
      put(key, sum, expiresAtMs(key));
      return sum;
    },
  };
  return commands;
}
