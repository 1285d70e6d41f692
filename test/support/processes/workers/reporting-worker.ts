/** A worker that sends what it logs, and answers each message, as long as its process can. */
import { createSluice } from "sluice";

const [redis = ""] = process.argv.slice(2);
const report = (_facts: object, line: string): void => void process.send?.(line);
const sluice = createSluice({ redis, logger: { warn: report, error: report } });
const queue = sluice.queue<number>("jobs", { bucket: sluice.bucket("b", { rate: "10/s" }) });

sluice.worker(queue, async () => {});
process.on("message", (message) => process.send?.(message));
