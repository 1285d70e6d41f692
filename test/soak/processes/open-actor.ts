import { createSluice, type Bucket, type Queue, type Sluice } from "sluice";
import type { ActorSettings, ToActor } from "./messages.ts";

export const PREFIX = "soak";
const BUCKET = "downstream";
export const QUEUE = "jobs";

/** A job, by its number. */
export interface SoakJob {
  readonly number: number;
}

export interface Actor {
  readonly sluice: Sluice;
  readonly bucket: Bucket;
  readonly queue: Queue<SoakJob>;
  readonly settings: ActorSettings;
}

/** A server that answers its probes but no draws is looked at so often. */
const PROBE_MS = 1_000;
/** What parts tell their log is not what a soak is about; what goes wrong shows in what it counts. */
const SILENT = { warn: () => {}, error: () => {} };

/** The sluice of a process of the soak, by the settings that it was started with. */
export function openActor(settings = JSON.parse(process.argv[2]!) as ActorSettings): Actor {
  const { redis, perSecond, burst, onStoreDown } = settings;
  // A process that waits for the soak's word must not end meanwhile, whatever else it has to do.
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

/** Closes at SIGTERM; the process ends then if nothing is left that keeps it alive. */
export function endWhenAsked({ sluice }: Actor): void {
  process.once("SIGTERM", async () => {
    await sluice.close();
    // It is not the soak that has gone.
    process.removeAllListeners("disconnect");
    process.disconnect();
  });
}

/** Resolves when the soak tells this process so. */
export function whenTold(kind: ToActor["kind"]): Promise<void> {
  return new Promise((resolve) => {
    process.on("message", (message) => {
      if ((message as ToActor).kind === kind) resolve();
    });
  });
}
