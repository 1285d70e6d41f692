/** A process with a worker of an encrypted queue. It sends the data of each job that its handler gets. */
import { createSluice } from "sluice";
import { encryption, type EncryptionOptions } from "sluice/codec";

/** What such a process is told, as JSON. */
export interface EncodedWorkerSettings {
  readonly redis: string;
  readonly prefix: string;
  readonly keys: EncryptionOptions["keys"];
  /** The jobs that it enqueues, instead of working. */
  readonly jobs?: readonly object[];
}

const { redis, prefix, keys, jobs } = JSON.parse(process.argv[2]!) as EncodedWorkerSettings;
const sluice = createSluice({ redis, prefix, logger: { warn() {}, error() {} } });
const bucket = sluice.bucket("downstream", { rate: "1000/s" });
const codec = encryption({ keys });
const queue = sluice.queue<object, object>("jobs", {
  bucket,
  codec,
  defaults: { attempts: 1_000, backoff: { baseMs: 1, maxMs: 10 } },
});

if (jobs === undefined) {
  sluice.worker(queue, ({ data }) => {
    process.send?.({ data });
    return { echo: data };
  });
} else {
  await queue.enqueueMany(jobs);
}
process.send?.("ready");
