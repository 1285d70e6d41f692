/** A relay moves committed rows from the database to Redis. */
import { setTimeout as pause } from "node:timers/promises";
import { reasonOf } from "../../core/describe.ts";
import { sampled, type Logger } from "../../core/logger.ts";
import type { Connections, PgClient } from "./database.ts";
import { createBatches, type BatchParts } from "./batch.ts";
import { sweep } from "./sweep.ts";
import { channelOf, SHARDS } from "./table.ts";

/** Moves rows until it is closed. */
export interface Relay {
  /** Finishes the current transaction, and stops. Closing the sluice also closes its relays. */
  close(): Promise<void>;
}

export interface RelayParts extends Omit<BatchParts, "outbox"> {
  readonly connections: Connections;
  readonly logger: Logger;
  /** Reads the id of the outbox from the database. */
  readonly readId: () => Promise<string>;
}

/** A relay takes half of the shards at a time, so that a second relay can take the other half. */
const HALVES = [
  Array.from({ length: SHARDS / 2 }, (_, at) => at),
  Array.from({ length: SHARDS / 2 }, (_, at) => SHARDS / 2 + at),
];
/** How long the relay waits after an error of the database or of Redis. */
const TROUBLE_WAIT_MS = 1_000;
const SWEEP_EVERY_MS = 10_000;

export function startRelay(parts: RelayParts): Relay {
  const { connections, options, readId } = parts;
  const logger = sampled(parts.logger, () => performance.now());
  const ended = new AbortController();
  const alarm = createAlarm(ended.signal);
  let lastTrouble: string | undefined;

  /** Logs a problem once, until the relay works again. */
  function note(error: unknown): void {
    const reason = reasonOf(error);
    if (reason === lastTrouble) return;
    lastTrouble = reason;
    parts.logger.error({ reason }, `The outbox relay tries again after an error: ${reason}`);
  }

  async function sleep(ms: number): Promise<void> {
    await pause(ms, undefined, { signal: ended.signal }).catch(() => undefined);
  }

  async function run(): Promise<void> {
    let moveBatch: ReturnType<typeof createBatches> | undefined;
    let outbox = "";
    let sweptAtMs = performance.now();
    while (!ended.signal.aborted) {
      alarm.reset();
      try {
        outbox ||= await readId();
        moveBatch ??= createBatches({ ...parts, outbox, logger });
        let hasMore = false;
        for (const shards of HALVES) {
          if (ended.signal.aborted) break;
          const { moved, isFull } = await moveBatch(shards);
          hasMore ||= moved > 0 || isFull;
        }
        if (performance.now() - sweptAtMs > SWEEP_EVERY_MS) {
          await sweep({ ...parts, ...options, outbox }, ended.signal);
          sweptAtMs = performance.now();
        }
        lastTrouble = undefined;
        if (!hasMore) await alarm.wait(options.pollMs);
      } catch (error) {
        note(error);
        await sleep(TROUBLE_WAIT_MS);
      }
    }
  }

  /** Listens for notifications. While this fails, the relay finds rows by polling. */
  async function listen(): Promise<void> {
    while (!ended.signal.aborted) {
      let client: PgClient | undefined;
      try {
        client = await connections.connect();
        await listenOn(client, parts, () => alarm.ring(), ended.signal);
      } catch (error) {
        note(error);
      } finally {
        // The connection listens to a channel, so it must not return to the pool.
        client?.release(true);
      }
      await sleep(TROUBLE_WAIT_MS);
    }
  }

  const running = Promise.all([run(), listen()]);
  return {
    async close() {
      ended.abort();
      await running;
    },
  };
}

/** Resolves when the relay has ended, or when the connection has. */
async function listenOn(
  client: PgClient,
  { name }: Pick<RelayParts, "name">,
  ring: () => void,
  ended: AbortSignal,
): Promise<void> {
  const isLost = new Promise<void>((resolve) => {
    client.on("error", () => resolve());
    client.on("end", () => resolve());
    ended.addEventListener("abort", () => resolve(), { once: true });
  });
  client.on("notification", ring);
  await client.query(`LISTEN ${channelOf(name)}`);
  // Rows may have been committed before the connection listened.
  ring();
  await isLost;
}

/** Wakes the relay when rows are committed. */
function createAlarm(ended: AbortSignal) {
  let isRung = false;
  let wake = (): void => undefined;
  ended.addEventListener("abort", () => wake(), { once: true });
  return {
    reset(): void {
      isRung = false;
    },
    ring(): void {
      isRung = true;
      wake();
    },
    /** Waits for a ring since the last reset, for the end, or for the time to pass. */
    async wait(ms: number): Promise<void> {
      if (isRung || ended.aborted) return;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, ms);
        wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    },
  };
}
