/**
 * A service as users write it: it paces calls, reads a rules file, and does a job with the handler in a file, or with a function where
 * such a file is refused. Types are checked and it is run under each way to load the package. Arguments: the URL of Redis, the file.
 */
import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import {
  contract,
  createSluice,
  InvalidOptionError,
  leakyBucket,
  type Handler,
  type Job,
  type Limit,
  type Queue,
  type Sluice,
  type Worker,
} from "sluice";
import { worstWindow } from "sluice/testing";

interface Greeting {
  readonly name: string;
}

const [, , redis = "", handlerFile = ""] = process.argv;
const limit: Limit = leakyBucket("500/s", { burst: 2 });
const greet: Handler<Greeting, string> = async ({ data }: Job<Greeting>) => `did ${data.name}`;

function startWorker(sluice: Sluice, queue: Queue<Greeting, string>): Worker {
  try {
    return sluice.worker(queue, handlerFile);
  } catch (error) {
    console.log(error instanceof InvalidOptionError ? `${error.name}: ${error.message}` : error);
    return sluice.worker(queue, greet);
  }
}

/** What a rules file says: its parser is loaded where there is one. */
async function showRules(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "sluice-consumer-"));
  const rules = join(folder, "sluice.yaml");
  writeFileSync(rules, "buckets: { api: { rate: 50/s } }");
  const sluice = createSluice({ redis: "memory", rules });
  console.log((await sluice.bucket("api").peek()).policy);
  await sluice.close();
  rmSync(folder, { recursive: true });
}

async function main(): Promise<void> {
  const sluice = createSluice({ redis, prefix: `t${randomUUID()}` });
  const bucket = sluice.bucket("downstream", { limits: [limit] });
  const call = bucket.throttled(async (value: string) => value);
  console.log((await Promise.all(["one", "two", "three"].map((value) => call(value)))).join(", "));
  console.log(contract(100, "1s").describes, worstWindow([0, 10, 2_000], 1_000));
  await showRules();

  const queue = sluice.queue<Greeting, string>("jobs", { bucket });
  const worker = startWorker(sluice, queue);
  const job = await queue.enqueue({ name: "this" });
  const result: string = await job.finished();
  console.log(result);
  await worker.close();
  await sluice.close();
}

void main();
