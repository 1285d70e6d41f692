import { tableOf, type Commands, type Value } from "../../lua/runtime.ts";
import { floatOf, optionOf } from "../commands/arguments.ts";
import { lastIdOf, readXread } from "../commands/streams.ts";
import type { Keyspace } from "../keyspace.ts";

/** A command that waits until it has a reply. */
export interface Wait {
  /** How long it waits. Infinity for a wait without end. */
  readonly forMs: number;
  /** Returns the reply, or undefined if there is none yet. */
  readonly attempt: () => Value;
}

type Blocking = (operands: readonly Value[], commands: Commands, keyspace: Keyspace) => Wait;

/** Takes from the first of the keys that is not empty. */
function taking(name: string): Blocking {
  return (operands, commands) => {
    const keys = operands.slice(0, -1);
    return {
      forMs: secondsOf(operands.at(-1)),
      attempt() {
        for (const key of keys) {
          const found = commands[name]!(key);
          if (typeof found === "string") return tableOf([key, found]);
          if (typeof found === "object" && found.a.length > 0) return tableOf([key, ...found.a]);
        }
        return undefined;
      },
    };
  };
}

function moving(name: string): Blocking {
  return (operands, commands) => ({
    forMs: secondsOf(operands.at(-1)),
    attempt() {
      const moved = commands[name]!(...operands.slice(0, -1));
      return moved === false ? undefined : moved;
    },
  });
}

export const BLOCKING: Readonly<Record<string, Blocking>> = {
  BLPOP: taking("LPOP"),
  BRPOP: taking("RPOP"),
  BZPOPMIN: taking("ZPOPMIN"),
  BZPOPMAX: taking("ZPOPMAX"),
  BRPOPLPUSH: moving("RPOPLPUSH"),
  BLMOVE: moving("LMOVE"),
  XREAD(operands, commands, { streamAt }) {
    const { blockMs, count, keys, ids } = readXread(operands);
    // "$" means the last entry at the time of the command, not of each attempt.
    const from = ids.map((id, index) => {
      const stream = id === "$" ? streamAt(keys[index]) : undefined;
      return stream ? lastIdOf(stream) : id === "$" ? "0-0" : id;
    });
    return {
      forMs: blockMs === undefined ? 0 : blockMs || Infinity,
      attempt() {
        const found = commands["XREAD"]!("COUNT", count, "STREAMS", ...keys, ...from);
        return found === false ? undefined : found;
      },
    };
  },
};

export function isBlocking(name: string, operands: readonly Value[]): boolean {
  if (name !== "XREAD") return name in BLOCKING;
  return operands.some((operand) => optionOf(operand) === "BLOCK");
}

function secondsOf(value: Value): number {
  const seconds = floatOf(value);
  if (seconds < 0) throw new Error("ERR timeout is negative");
  return seconds === 0 ? Infinity : seconds * 1_000;
}
