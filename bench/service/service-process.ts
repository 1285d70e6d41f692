/** Runs the compared servers in one process: a plain route, a bare proxy, and Sluice's servers. */
import replyFrom from "@fastify/reply-from";
import Fastify from "fastify";
import { createServer as createHttp, type ServerResponse } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { importBuild } from "../compare/import-build.ts";
import { createMachineClock } from "../fleet/machine-clock.ts";
import { EVERY_MS } from "./streams.ts";

/** The results that the process reports on request, by name. */
export interface Answers {
  readonly ready: {
    readonly plain: string;
    readonly bare: string;
    readonly sluice: string;
  };
  /** The units that were drawn from the bucket of tries. */
  readonly drawn: number;
  readonly waiting: number;
  /** User and system time of the process since it started. */
  readonly cpuUs: number;
  /** Memory in use after a garbage collection. */
  readonly memory: { readonly rss: number; readonly heap: number };
}

const CAPACITY = 10_000_000;

const [redis = "", role = "", build] = process.argv.slice(2);

if (role === "upstream") await serveUpstream();
else await serve();

/**
 * Serves an API that answers each request with a short JSON. Below `/stream`, it sends events with their sending
 * time.
 */
async function serveUpstream(): Promise<void> {
  const body = JSON.stringify({ id: "1", object: "answer", text: "x".repeat(200) });
  const headers = { "content-type": "application/json", "content-length": body.length };
  const machineMs = createMachineClock();
  function stream(response: ServerResponse): void {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const sending = setInterval(() => response.write(`data: ${machineMs()}\n\n`), EVERY_MS);
    response.once("close", () => clearInterval(sending));
  }
  const api = createHttp((request, response) => {
    request.resume();
    if (request.url === "/stream") return stream(response);
    response.writeHead(200, headers).end(body);
  });
  await once(api.listen(0, "127.0.0.1"), "listening");
  const url = `http://127.0.0.1:${(api.address() as AddressInfo).port}`;
  process.send?.({ ready: { plain: url, bare: url, sluice: url } });
  process.once("disconnect", () => api.close());
}

async function serve(): Promise<void> {
  const { createSluice, tokenBucket } = await importBuild(build);
  const { createServer } = await importBuild(build, "./server");
  const upstream = role;
  const plain = Fastify();
  const schema = { body: { type: "object", properties: { key: { type: "string" } } } };
  plain.post("/plain", { schema }, async () => ({ allowed: true, remaining: 1, resetAfterMs: 1 }));
  await plain.register(replyFrom, { base: upstream });
  plain.all("/bare", (_request, reply) => reply.from("/"));

  const sluice = createSluice({ redis });
  const tries = sluice.bucket("tries", {
    limits: [tokenBucket({ capacity: CAPACITY, refill: "1/min" })],
  });
  sluice.bucket("keys", {
    perKey: { limits: [tokenBucket({ capacity: 100_000, refill: "1/h" })] },
  });
  const paused = sluice.bucket("paused", { rate: "1000/s" });
  await paused.pause();
  sluice.bucket("open", { rate: "1000000/s", burst: 1_000_000 });
  const forward = { open: { to: upstream } };
  const server = await createServer(sluice, {
    port: 0,
    insecureLocal: true,
    logger: false,
    forward,
  });

  const host = "127.0.0.1";
  const plainUrl = await plain.listen({ port: 0, host });
  const { url } = await server.listen();
  const ready = { plain: `${plainUrl}/plain`, bare: `${plainUrl}/bare`, sluice: url };
  process.send?.({ ready });
  process.on("message", (asked: keyof Answers) => {
    void answer(asked).then((value) => process.send?.({ [asked]: value }));
  });
  process.once("disconnect", () => process.exit(0));

  async function answer(asked: keyof Answers): Promise<unknown> {
    if (asked === "waiting") return paused.waiting;
    if (asked === "drawn") return CAPACITY - (await tries.peek()).limits[0]!.remaining!;
    if (asked === "cpuUs") {
      const { user, system } = process.cpuUsage();
      return user + system;
    }
    globalThis.gc?.();
    globalThis.gc?.();
    const { rss, heapUsed, external } = process.memoryUsage();
    return { rss, heap: heapUsed + external };
  }
}
