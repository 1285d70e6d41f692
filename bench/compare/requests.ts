/** The scenarios of requests to the HTTP service, compared with a plain route of fastify and a bare proxy. */
import { connect, type Socket } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { redisCpuUs } from "../fleet/redis-cost.ts";
import { start, type Servers } from "../service/servers.ts";
import { importBuild } from "./import-build.ts";
import type { Run, Scenario } from "./scenario.ts";
import type { Figure, Figures } from "./verdict.ts";

const START_UP_SECONDS = 2;

const FIGURES: readonly Figure[] = [
  { key: "serverUs", title: "server CPU per request, µs", better: "lower", digits: 1 },
  { key: "redisUs", title: "Redis CPU per request, µs", better: "lower", digits: 2, floor: 0.5 },
  { key: "perSecond", title: "requests per second", better: "higher", digits: 0, isJudged: false },
];

type Server = keyof Servers["ready"];

export const requests = {
  "http-try": scenario("/try, one bucket", {
    path: "/v1/buckets/tries/try",
    connections: 200,
    peer: { title: "plain fastify route", server: "plain" },
  }),
  forward: scenario("forward", {
    path: "/open/",
    connections: 10,
    peer: { title: "bare reply-from", server: "bare" },
  }),
} as const satisfies Readonly<Record<string, Scenario>>;

interface Requests {
  readonly path: string;
  readonly connections: number;
  readonly peer: { readonly title: string; readonly server: Server };
}

function scenario(title: string, { path, connections, peer }: Requests): Scenario {
  return {
    title,
    figures: FIGURES,
    async run(run, build) {
      await importBuild(build, "./server");
      return request(run, { server: "sluice", path, connections, build });
    },
    peer: {
      title: peer.title,
      run: (run) => request(run, { server: peer.server, path: "", connections }),
    },
  };
}

interface Target {
  readonly server: Server;
  readonly path: string;
  readonly connections: number;
  readonly build?: string;
}

interface Sending {
  /** Returns the number of requests that were answered so far. */
  answered(): number;
  /** @throws when a request fails or is not answered with 200. */
  forSeconds(seconds: number): Promise<void>;
  end(): void;
}

async function request(
  { bench: { redis, redisUrl }, seconds }: Run,
  { server, path, connections, build }: Target,
): Promise<Figures> {
  const upstream = await start(redisUrl, "upstream");
  const servers = await start(redisUrl, upstream.ready.plain, build);
  const url = new URL(`${servers.ready[server]}${path}`);
  const sending = keepSending(url, url.pathname, connections);
  try {
    await sending.forSeconds(START_UP_SECONDS);
    const read = async (): Promise<readonly [serverUs: number, redisUs: number]> => [
      await servers.ask("cpuUs"),
      await redisCpuUs(redis),
    ];
    const [serverBefore, redisBefore] = await read();
    const [answeredBefore, fromMs] = [sending.answered(), performance.now()];
    await sending.forSeconds(seconds);
    const [serverAfter, redisAfter] = await read();
    const answered = sending.answered() - answeredBefore;
    return {
      serverUs: (serverAfter - serverBefore) / answered,
      redisUs: (redisAfter - redisBefore) / answered,
      perSecond: (answered * 1_000) / (performance.now() - fromMs),
    };
  } finally {
    sending.end();
    await servers.end();
    await upstream.end();
  }
}

/**
 * Keeps one request in flight on each connection. Uses plain sockets, because they need less CPU than an HTTP client.
 */
function keepSending({ host, hostname, port }: URL, path: string, connections: number): Sending {
  const head = `POST ${path} HTTP/1.1\r\nhost: ${host}\r\ncontent-type: application/json\r\n`;
  const request = Buffer.from(`${head}content-length: 2\r\n\r\n{}`);
  const sockets: Socket[] = [];
  let answered = 0;
  const failure = new Promise<never>((_, reject) => {
    for (let count = 0; count < connections; count++) {
      const socket = connect({ port: Number(port), host: hostname, noDelay: true });
      sockets.push(socket);
      socket.setEncoding("latin1").on("error", reject);
      socket.on("data", (text: string) => {
        const status = /^HTTP\/1\.1 (\d+)/.exec(text)?.[1];
        // Later parts of a response have no status line.
        if (status === undefined) return;
        if (status !== "200") return reject(new Error(`${path} answered ${text}`));
        answered += 1;
        socket.write(request);
      });
      socket.write(request);
    }
  });
  return {
    answered: () => answered,
    async forSeconds(seconds) {
      await Promise.race([pause(seconds * 1_000), failure]);
    },
    end() {
      for (const socket of sockets) socket.destroy();
    },
  };
}
