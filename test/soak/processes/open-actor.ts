import { createSluice, type Bucket, type Queue, type Sluice } from "sluice";
import type { ActorSettings, ToActor } from "./messages.ts";

export const PREFIX = "soak";
const BUCKET = "downstream";
export const QUEUE = "jobs";

/** A job's data: its number. */
export interface SoakJob {
  readonly number: number;
}

export interface Actor {
  readonly sluice: Sluice;
  readonly bucket: Bucket;
  readonly queue: Queue<SoakJob>;
  readonly settings: ActorSettings;
}

/** How often the breaker probes a server that does not answer. */
const PROBE_MS = 1_000;
/** The soak ignores log lines; failures show in what it counts. */
const SILENT = { warn: () => {}, error: () => {} };

/** Opens the sluice of a soak process, with the settings from its command line. */
export function openActor(settings = JSON.parse(process.argv[2]!) as ActorSettings): Actor {
  const { redis, perSecond, burst, onStoreDown } = settings;
  // The process must not end while it waits for a message from the soak.
  process.channel?.ref();
  const sluice = createSluice({
    redis,
    prefix: PREFIX,
    breaker: { probeMs: PROBE_MS },
    logger: SILENT,
  });
  const bucket = sluice.bucket(BUCKET, { rate: `${perSecond}/s`, burst, onStoreDown });
  const queue = sluice.queue<SoakJob>(QUEUE, { bucket });
  return { sluice, bucket, queue, settings };
}

/** Closes at SIGTERM; the process then ends, unless something keeps it alive. */
export function endWhenAsked({ sluice }: Actor): void {
  process.once("SIGTERM", async () => {
    await sluice.close();
    // This disconnect does not mean that the soak has ended.
    process.removeAllListeners("disconnect");
    process.disconnect();
  });
}

/** Resolves when the soak sends this kind of message. */
export function untilMessage(kind: ToActor["kind"]): Promise<void> {
  return new Promise((resolve) => {
    process.on("message", (message) => {
      if ((message as ToActor).kind === kind) resolve();
    });
  });
}
