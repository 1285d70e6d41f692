/** A relay moves committed rows from the database to Redis. */
import { setTimeout as pause } from "node:timers/promises";
import { reasonOf } from "../../core/describe.ts";
import { LONGEST_MS } from "../../core/input/options.ts";
import { sampled, type Logger } from "../../core/logger.ts";
import type { Connections, PgClient } from "./database.ts";
import type { OutboxReport } from "../../core/stores/insight/store.ts";
import type { OutboxCounts } from "./state.ts";
import { createBatches, type BatchParts } from "./batch.ts";
import { sweep } from "./sweep.ts";
import { channelOf, SHARDS } from "./table.ts";

/** Moves rows until it is closed. */
export interface Relay {
  /** Finishes the current transaction, and stops. Closing the sluice also closes its relays. */
  close(): Promise<void>;
}

export interface RelayParts extends Omit<BatchParts, "outbox" | "onMoved"> {
  readonly connections: Connections;
  readonly logger: Logger;
  /** Whether producers notify relays. */
  readonly notify: boolean;
  /** Reads the id of the outbox from the database. */
  readonly readId: () => Promise<string>;
  /** Counts the rows of the outbox. */
  readonly counts: () => Promise<OutboxCounts>;
  /** Stores a report in Redis, so that all servers can show the outbox. */
  readonly report: (report: OutboxReport) => Promise<void>;
}

/**
 * A relay moves two batches at a time, each of half of the shards. While Redis stores one batch, Postgres reads the
 * other. A second relay takes the half that is free.
 */
const HALVES = [
  Array.from({ length: SHARDS / 2 }, (_, at) => at),
  Array.from({ length: SHARDS / 2 }, (_, at) => SHARDS / 2 + at),
];
/** How long the relay waits after an error of the database or of Redis. */
const TROUBLE_WAIT_MS = 1_000;
const SWEEP_EVERY_MS = 10_000;
/** Counting the rows of a large table takes long, so its reports are less frequent. */
const REPORT_EVERY_MS = { least: 5_000, most: 30_000, byDuration: 20 };

export function startRelay(parts: RelayParts): Relay {
  const { connections, options, readId, name } = parts;
  const logger = sampled(parts.logger, () => performance.now());
  const ended = new AbortController();
  const alarms: { ring(): void }[] = [];
  let movedSinceReport = 0;
  const onMoved = (rows: number): void => void (movedSinceReport += rows);

  /** Returns a function that logs a problem once, until the problem is over or another one occurs. */
  function createNote(): (problem: unknown) => void {
    let last: string | undefined;
    return (problem) => {
      const reason = problem === undefined ? undefined : reasonOf(problem);
      if (reason !== undefined && reason !== last) {
        parts.logger.error({ reason }, `The outbox relay tries again after an error: ${reason}`);
      }
      last = reason;
    };
  }

  async function sleep(ms: number): Promise<void> {
    await pause(ms, undefined, { signal: ended.signal }).catch(() => undefined);
  }

  /** Reads the id of the outbox until the database replies. Both loops share the result. */
  async function readOutbox(): Promise<string> {
    const note = createNote();
    while (!ended.signal.aborted) {
      try {
        return await readId();
      } catch (error) {
        note(error);
        await sleep(TROUBLE_WAIT_MS);
      }
    }
    return "";
  }

  async function run(outboxRead: Promise<string>, shards: readonly number[]): Promise<void> {
    const outbox = await outboxRead;
    const moveBatch = createBatches({ ...parts, outbox, logger, onMoved });
    const note = createNote();
    const alarm = createAlarm(ended.signal);
    alarms.push(alarm);
    while (!ended.signal.aborted) {
      alarm.reset();
      try {
        const { moved, isFull } = await moveBatch(shards);
        note(undefined);
        if (moved === 0 && !isFull) await alarm.wait(options.pollMs);
      } catch (error) {
        note(error);
        await sleep(TROUBLE_WAIT_MS);
      }
    }
  }

  async function sweepAlways(outboxRead: Promise<string>): Promise<void> {
    const outbox = await outboxRead;
    const note = createNote();
    while (!ended.signal.aborted) {
      await sleep(SWEEP_EVERY_MS);
      await sweep({ ...parts, ...options, outbox }, ended.signal).then(note, note);
    }
  }

  async function report(outbox: string): Promise<void> {
    const { waiting: pending, failed, lagMs: oldestMs } = await parts.counts();
    const moved = movedSinceReport;
    // Rows in a lost report are not counted, because the report may have been stored.
    movedSinceReport = 0;
    const state = { name: `${name.schema}.${name.table}`, pending, failed, oldestMs };
    await parts.report({ outbox, moved, state });
  }

  /** Reports at once, and then every 5 to 30 seconds. */
  async function reportAlways(outboxRead: Promise<string>): Promise<void> {
    const outbox = await outboxRead;
    const note = createNote();
    while (!ended.signal.aborted) {
      const beganMs = performance.now();
      await report(outbox).then(note, note);
      const tookMs = performance.now() - beganMs;
      const { least, most, byDuration } = REPORT_EVERY_MS;
      await sleep(Math.min(most, Math.max(least, tookMs * byDuration)));
    }
  }

  function ring(): void {
    for (const alarm of alarms) alarm.ring();
  }

  /** Listens for notifications. While this fails, the relay finds rows by polling. */
  async function listen(): Promise<void> {
    const note = createNote();
    while (parts.notify && !ended.signal.aborted) {
      let client: PgClient | undefined;
      try {
        client = await connections.connect();
        await listenOn(client, parts, ring, ended.signal);
      } catch (error) {
        note(error);
      } finally {
        // The connection listens to a channel, so it must not return to the pool.
        client?.release(true);
      }
      await sleep(TROUBLE_WAIT_MS);
    }
  }

  const outboxRead = readOutbox();
  const moving = HALVES.map((shards) => run(outboxRead, shards));
  const others = [sweepAlways(outboxRead), listen(), reportAlways(outboxRead)];
  const running = Promise.all([...moving, ...others]);
  return {
    async close() {
      ended.abort();
      await running;
      // The rows are moved, so a lost report must not make the close fail.
      if (movedSinceReport > 0) await outboxRead.then(report).catch(() => undefined);
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
  const isOver = new AbortController();
  const end = (): void => isOver.abort();
  client.on("error", end);
  client.on("end", end);
  client.on("notification", ring);
  await client.query(`LISTEN ${channelOf(name)}`);
  // Rows may have been committed before the connection listened.
  ring();
  const signal = AbortSignal.any([isOver.signal, ended]);
  await pause(LONGEST_MS, undefined, { signal }).catch(() => undefined);
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
