import { tableOf, type Commands } from "../lua/runtime.ts";
import { bytesOf, OK } from "./commands/arguments.ts";
import { hashCommands } from "./commands/hashes.ts";
import { keyCommands } from "./commands/keys.ts";
import { sortedSetCommands } from "./commands/sorted-sets.ts";
import { stringCommands } from "./commands/strings.ts";
import { createKeyspace, type Keyspace } from "./keyspace.ts";

export interface MemoryRedis {
  readonly keyspace: Keyspace;
  /** The commands for scripts. A missing value is returned as `false`. */
  readonly commands: Commands;
  /** Deletes expired keys, at most once a minute. */
  readonly sweep: () => void;
  readonly clear: () => void;
}

const SWEEP_EVERY_MS = 60_000;

/**
 * Creates a small in-memory Redis for translated scripts. It supports strings, hashes and sorted
 * sets that expire. `server/server.ts` adds the other types and talks to clients. Each character of
 * a string represents one byte.
 */
export function createMemoryRedis(given: {
  /** The clock of `TIME`, in whole µs. */
  readonly nowUs: () => number;
  readonly expiryUs: () => number;
  /** Returns how many clients received the message. */
  readonly publish: (channel: string, message: string) => number;
}): MemoryRedis {
  const { nowUs, expiryUs, publish } = given;
  const nowMs = (): number => Math.floor(expiryUs() / 1_000);
  const keyspace = createKeyspace(nowMs);
  let sweepAtMs = nowMs() + SWEEP_EVERY_MS;

  const clear = (): void => keyspace.keys.clear();
  return {
    keyspace,
    commands: {
      TIME() {
        const now = nowUs();
        return tableOf([String(Math.floor(now / 1e6)), String(now % 1e6)]);
      },
      PUBLISH: (channel, message) => publish(bytesOf(channel), bytesOf(message)),
      FLUSHDB() {
        clear();
        return OK;
      },
      ...keyCommands(keyspace),
      ...stringCommands(keyspace),
      ...hashCommands(keyspace),
      ...sortedSetCommands(keyspace),
    },
    sweep() {
      const now = nowMs();
      if (now < sweepAtMs) return;
      sweepAtMs = now + SWEEP_EVERY_MS;
      keyspace.sweep();
    },
    clear,
  };
}
