/**
 * Reads many streams over one connection. After a reconnect, each stream continues after the last
 * entry read.
 */
import { setTimeout as pause } from "node:timers/promises";
import type { Cluster, Redis } from "ioredis";
import { EVENTS_BLOCK_MS } from "../connection.ts";
import { untilReady } from "../ioredis/readiness.ts";

/** Where to start reading a stream, and the callbacks. */
interface StreamStart {
  readonly lastId: string;
  /** Receives the fields of an entry: names and values alternate. */
  readonly onEntry: (fields: readonly string[]) => void;
  /** Receives an error of the connection or of a read. The reader then retries. */
  readonly onError: (error: Error) => void;
  /** Runs each time the connection becomes usable. */
  readonly onReady: () => void;
}

export interface StreamReading {
  stop(): void;
}

/** A stream that is being read, with its position and callbacks. */
interface Reading extends StreamStart {
  readonly stream: string;
  lastId: string;
}

export interface StreamReader {
  /** Reads all entries after `lastId` until the returned reading is stopped. */
  read(stream: string, from: StreamStart): StreamReading;
}

/** The maximum number of entries per stream in one read. */
const MOST_ENTRIES = 1_000;
const ASK_AGAIN_MS = 1_000;

type Reply = readonly (readonly [stream: string, entries: readonly StreamEntry[]])[] | null;
type StreamEntry = readonly [id: string, fields: readonly string[]];

/**
 * Creates a reader whose connection is opened with the first stream and closed with the last. Redis
 * cannot add a stream to a blocking read. To add a stream, the reader ends the blocking read by
 * dropping its connection. The next read continues after the entries that were already read.
 */
export function createStreamReader(open: () => Redis | Cluster): StreamReader {
  const readings = new Set<Reading>();
  let client: Redis | Cluster | undefined;
  /**
   * The connection with a blocking read. That read includes only the streams that were open when it
   * was sent.
   */
  let blocked: Redis | Cluster | undefined;
  let isEnding = false;

  function start(): void {
    const opened = open();
    client = opened;
    opened.on("error", (error: Error) => {
      for (const { onError } of readings) onError(error);
    });
    opened.on("ready", () => {
      for (const { onReady } of readings) onReady();
    });
    void keepReading(opened);
  }

  async function keepReading(reader: Redis | Cluster): Promise<void> {
    while (client === reader) {
      try {
        await untilReady(reader, EVENTS_BLOCK_MS);
        await readOnce(reader);
      } catch (error) {
        await afterFailure(reader, error as Error);
      }
    }
  }

  async function readOnce(reader: Redis | Cluster): Promise<void> {
    const asked = [...readings];
    deliver(asked, await ask(reader, asked));
  }

  async function ask(reader: Redis | Cluster, asked: readonly Reading[]): Promise<Reply> {
    const streams = asked.map(({ stream }) => stream);
    const ids = asked.map(({ lastId }) => lastId);
    blocked = reader;
    try {
      const from = ["STREAMS", ...streams, ...ids] as const;
      const most = ["COUNT", MOST_ENTRIES, "BLOCK", EVENTS_BLOCK_MS] as const;
      return (await reader.call("xread", ...most, ...from)) as Reply;
    } finally {
      if (blocked === reader) blocked = undefined;
    }
  }

  function deliver(asked: readonly Reading[], reply: Reply): void {
    const byStream = new Map(reply);
    for (const reading of asked) {
      for (const [id, fields] of byStream.get(reading.stream) ?? []) {
        if (!readings.has(reading)) break;
        reading.lastId = id;
        reading.onEntry(fields);
      }
    }
  }

  async function afterFailure(reader: Redis | Cluster, error: Error): Promise<void> {
    // Errors of the connection itself are already reported by its "error" event.
    if (client !== reader || reader.status !== "ready") return;
    for (const { onError } of readings) onError(error);
    await pause(ASK_AGAIN_MS, undefined, { ref: false });
  }

  /**
   * Ends the blocking read so that the next read includes new streams. Streams that are added in
   * the same turn of the event loop end it only once.
   */
  function endRead(): void {
    if (blocked !== client || isEnding) return;
    isEnding = true;
    setImmediate(() => {
      isEnding = false;
      if (blocked === client) client?.disconnect(true);
    });
  }

  return {
    read(stream, from) {
      const reading: Reading = { stream, ...from };
      readings.add(reading);
      if (client === undefined) start();
      else endRead();
      return {
        stop() {
          readings.delete(reading);
          if (readings.size > 0) return;
          client?.disconnect();
          client = undefined;
        },
      };
    },
  };
}
