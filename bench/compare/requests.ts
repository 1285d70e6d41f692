/** Requests to the HTTP service, beside a plain route of fastify and a bare proxy. */
import { setTimeout as pause } from "node:timers/promises";
import { Pool } from "undici";
import { redisCpuUs } from "../fleet/redis-cost.ts";
import { start, type Servers } from "../service/servers.ts";
import { importBuild } from "./import-build.ts";
import type { Run, Scenario } from "./scenario.ts";
import type { Figure, Figures } from "./verdict.ts";

const START_UP_SECONDS = 2;
const CONNECTIONS = 50;

const FIGURES: readonly Figure[] = [
  { key: "serverUs", title: "server CPU per request, µs", better: "lower", digits: 1 },
  { key: "redisUs", title: "Redis CPU per request, µs", better: "lower", digits: 2, floor: 0.5 },
  { key: "perSecond", title: "requests per second", better: "higher", digits: 0 },
];

type Server = keyof Servers["ready"];

export const requests = {
  "http-try": scenario("/try, one bucket", "/v1/buckets/tries/try", {
    title: "plain fastify route",
    server: "plain",
  }),
  forward: scenario("forward", "/open/", { title: "bare reply-from", server: "bare" }),
} as const satisfies Readonly<Record<string, Scenario>>;

function scenario(
  title: string,
  path: string,
  peer: { readonly title: string; readonly server: Server },
): Scenario {
  return {
    title,
    figures: FIGURES,
    async run(run, build) {
      await importBuild(build, "./server");
      return request(run, { server: "sluice", path, build });
    },
    peer: { title: peer.title, run: (run) => request(run, { server: peer.server, path: "" }) },
  };
}

interface Target {
  readonly server: Server;
  readonly path: string;
  readonly build?: string;
}

async function request(
  { bench: { redis, redisUrl }, seconds }: Run,
  { server, path, build }: Target,
): Promise<Figures> {
  const upstream = await start(redisUrl, "upstream");
  const servers = await start(redisUrl, upstream.ready.plain, build);
  const { origin, pathname } = new URL(`${servers.ready[server]}${path}`);
  const sending = keepSending(origin, pathname);
  try {
    await pause(START_UP_SECONDS * 1_000);
    const read = async (): Promise<readonly [serverUs: number, redisUs: number]> => [
      await servers.ask("cpuUs"),
      await redisCpuUs(redis),
    ];
    const [serverBefore, redisBefore] = await read();
    const [answeredBefore, fromMs] = [sending.answered(), performance.now()];
    await pause(seconds * 1_000);
    const [serverAfter, redisAfter] = await read();
    const answered = sending.answered() - answeredBefore;
    return {
      serverUs: (serverAfter - serverBefore) / answered,
      redisUs: (redisAfter - redisBefore) / answered,
      perSecond: (answered * 1_000) / (performance.now() - fromMs),
    };
  } finally {
    await sending.end();
    await servers.end();
    await upstream.end();
  }
}

/** Keeps one request in flight on each connection. */
function keepSending(origin: string, path: string): { answered(): number; end(): Promise<void> } {
  const pool = new Pool(origin, { connections: CONNECTIONS, pipelining: 1 });
  const headers = { "content-type": "application/json" };
  let answered = 0;
  let isEnded = false;

  async function loop(): Promise<void> {
    while (!isEnded) {
      const { statusCode, body } = await pool.request({
        path,
        method: "POST",
        headers,
        body: "{}",
      });
      const text = await body.text();
      if (statusCode !== 200) throw new Error(`${path} answered ${statusCode}: ${text}`);
      answered += 1;
    }
  }

  const loops = Promise.all(Array.from({ length: CONNECTIONS }, loop));
  return {
    answered: () => answered,
    async end() {
      isEnded = true;
      await loops;
      await pool.close();
    },
  };
}
