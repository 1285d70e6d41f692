import { createSluice, type Bucket, type Queue, type Sluice } from "sluice";
import { TENANTS_PER_SECOND, weightOf, type TenantJob } from "../tenants/tenants.ts";
import type { ActorSettings, ToActor } from "./messages.ts";

export const PREFIX = "soak";
const BUCKET = "downstream";
export const QUEUE = "jobs";
const TENANTS_BUCKET = "partner";
export const TENANTS_QUEUE = "tenants";

/** A job's data: its number. */
interface SoakJob {
  readonly number: number;
}

export interface Actor {
  readonly sluice: Sluice;
  readonly bucket: Bucket;
  readonly queue: Queue<SoakJob>;
  readonly tenants: Queue<TenantJob>;
  readonly settings: ActorSettings;
}

/** How often the breaker probes a server that does not answer. */
const PROBE_MS = 1_000;
/** The soak ignores log lines; failures show in what it counts. */
const SILENT = { warn: () => {}, error: () => {} };

/** Opens the sluice of a soak process, with the settings from its command line. */
export function openActor(settings = JSON.parse(process.argv[2]!) as ActorSettings): Actor {
  const { redis, perSecond, burst, onStoreDown } = settings;
  let { gold } = settings;
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
  const tenants = sluice.queue<TenantJob>(TENANTS_QUEUE, {
    bucket: sluice.bucket(TENANTS_BUCKET, { rate: `${TENANTS_PER_SECOND}/s`, burst, onStoreDown }),
    weights: (tenant) => weightOf(tenant, gold),
  });
  process.on("message", (message) => {
    if ((message as ToActor).kind === "weigh") ({ gold } = message as { readonly gold: number });
  });
  return { sluice, bucket, queue, tenants, settings };
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
