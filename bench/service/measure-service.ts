/** The HTTP service beside a plain route and a bare proxy, in turns; `wrk` sends the requests. */
import { execFile, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Flags } from "../flags.ts";
import type { Bench } from "../fleet/run-load.ts";
import { rowOf } from "../promises.ts";
import type { Table } from "../table.ts";
import type { Answers } from "./service-process.ts";
import { EVERY_MS, measureStreams, STREAMS } from "./streams.ts";

const run = promisify(execFile);
const PROCESS = fileURLToPath(new URL("./service-process.ts", import.meta.url));
const WAITING = 10_000;
const KEYS = 10_000;

interface Load {
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p95Ms: number;
  readonly p99Ms: number;
  readonly answered: number;
  readonly refused: number;
}

export async function measureService({ redisUrl }: Bench, { effort }: Flags): Promise<Table[]> {
  const folder = await mkdtemp(join(tmpdir(), "sluice-service-"));
  const upstream = await start(redisUrl, "upstream");
  const servers = await start(redisUrl, upstream.ready.plain);
  const { plain, bare, sluice } = servers.ready;
  const once = async (url: string, connections: number, body: string): Promise<Load> =>
    load({ folder, url, connections, body, seconds: effort.throughputSeconds });
  /** Two ways in turns; the median of the ratios, and the last of each. */
  const compare = async (
    mine: () => Promise<Load>,
    theirs: () => Promise<Load>,
  ): Promise<{ mine: Load; theirs: Load; ratio: number }> => {
    await Promise.all([mine(), theirs()]);
    const pairs: [Load, Load][] = [];
    for (let round = 0; round < effort.rounds; round++) pairs.push([await theirs(), await mine()]);
    const ratios = pairs.map(([of, to]) => to.perSecond / of.perSecond).toSorted((a, b) => a - b);
    const [last, own] = pairs.at(-1)!;
    return { mine: own, theirs: last, ratio: ratios[Math.floor(ratios.length / 2)]! };
  };
  try {
    const body = `return '{}'`;
    const oneKey = await compare(
      () => once(`${sluice}/v1/buckets/tries/try`, 200, body),
      () => once(plain, 200, body),
    );
    // What was under way at the end of the last turn is given back.
    await pause(500);
    const before = await servers.ask("drawn");
    const exact = await once(`${sluice}/v1/buckets/tries/try`, 200, body);
    await pause(500);
    const drawn = (await servers.ask("drawn")) - before;
    const random = `return '{"key":"k' .. math.random(${KEYS}) .. '"}'`;
    const manyKeys = await compare(
      () => once(`${sluice}/v1/buckets/keys/try`, 200, random),
      () => once(plain, 200, random),
    );
    const proxy = await compare(
      () => once(`${sluice}/open/`, 10, body),
      () => once(bare, 10, body),
    );
    const seconds = effort.throughputSeconds;
    const straight = await measureStreams(`${upstream.ready.plain}/stream`, seconds);
    const through = await measureStreams(`${sluice}/open/stream`, seconds);
    const waiting = await measureWaiting(servers, sluice);
    return [
      {
        title: "POST /v1/buckets/{name}/try, 200 connections, beside a plain route of fastify",
        rows: [
          rowOf("the plain route, requests a second", oneKey.theirs.perSecond, { digits: 0 }),
          rowOf("one bucket, requests a second", oneKey.mine.perSecond, { digits: 0 }),
          rowOf("the same, 95th percentile, ms", oneKey.mine.p95Ms, {
            digits: 1,
            bound: { atMost: 16 },
          }),
          rowOf("of the plain route", oneKey.ratio, { bound: { atLeast: 0.85 } }),
          rowOf("drawn, of what was answered 200", drawn / (exact.answered - exact.refused), {
            digits: 5,
          }),
          rowOf(`${KEYS} keys, requests a second`, manyKeys.mine.perSecond, { digits: 0 }),
          rowOf("of the plain route", manyKeys.ratio, { bound: { atLeast: 0.6 } }),
        ],
      },
      {
        title: "A forward, 10 connections, beside bare @fastify/reply-from",
        rows: [
          rowOf("bare, requests a second", proxy.theirs.perSecond, { digits: 0 }),
          rowOf("the forward, requests a second", proxy.mine.perSecond, { digits: 0 }),
          rowOf("of the bare one", proxy.ratio, { bound: { atLeast: 0.8 } }),
          rowOf("added to the median, ms", proxy.mine.p50Ms - proxy.theirs.p50Ms, { digits: 2 }),
          rowOf("added to the 99th percentile, ms", proxy.mine.p99Ms - proxy.theirs.p99Ms, {
            digits: 2,
          }),
        ],
      },
      {
        title: `${STREAMS} streams at once through a forward, each with an event every ${EVERY_MS} ms`,
        rows: [
          rowOf("events a second", through.events / seconds, { digits: 0 }),
          rowOf("straight from the upstream, 99th percentile, ms", straight.p99Ms, { digits: 2 }),
          rowOf("through the forward, median, ms", through.p50Ms, { digits: 2 }),
          rowOf("through the forward, 99th percentile, ms", through.p99Ms, { digits: 2 }),
          rowOf("held back at the 99th percentile, ms", through.p99Ms - straight.p99Ms, {
            digits: 2,
            bound: { atMost: 5 },
          }),
        ],
      },
      {
        title: `${WAITING} draws that wait, each on a connection of its own`,
        rows: [
          rowOf("bytes of memory each (RSS)", waiting.rss, {
            digits: 0,
            bound: { atMost: 25_000 },
          }),
          rowOf("of that in the heap and beside it", waiting.heap, { digits: 0 }),
        ],
      },
    ];
  } finally {
    await servers.end();
    await upstream.end();
    await rm(folder, { recursive: true });
  }
}

interface Servers {
  readonly ready: Answers["ready"];
  ask<Name extends keyof Answers>(name: Name): Promise<Answers[Name]>;
  end(): Promise<void>;
}

async function start(redisUrl: string, role: string): Promise<Servers> {
  const child = fork(PROCESS, [redisUrl, role], { execArgv: [...process.execArgv, "--expose-gc"] });
  const died = once(child, "exit").then(([code]) => {
    throw new Error(`A process of the bench ended with ${String(code)}`);
  });
  const answerOf = async (name: keyof Answers): Promise<Partial<Answers>> => {
    for (;;) {
      const [message] = (await Promise.race([once(child, "message"), died])) as [Partial<Answers>];
      if (name in message) return message;
    }
  };
  const { ready } = (await answerOf("ready")) as Pick<Answers, "ready">;
  return {
    ready,
    async ask(name) {
      const answer = answerOf(name);
      child.send(name);
      return (await answer)[name] as never;
    },
    async end() {
      const ended = once(child, "exit");
      child.disconnect();
      await ended;
    },
  };
}

const REPORT = `
done = function(summary, latency)
  local bad = summary.errors.status
  local answered = summary.requests
  io.write(string.format('\\nREPORT {"answered":%d,"refused":%d,"us":%d,"p50":%d,"p95":%d,"p99":%d}\\n',
    answered, bad, summary.duration, latency:percentile(50), latency:percentile(95), latency:percentile(99)))
end
`;

/** What `wrk` saw. */
async function load(how: {
  readonly folder: string;
  readonly url: string;
  readonly connections: number;
  readonly body: string;
  readonly seconds: number;
}): Promise<Load> {
  const { folder, url, connections, body, seconds } = how;
  const script = join(folder, "load.lua");
  const headers = `wrk.method = "POST"\nwrk.headers["content-type"] = "application/json"\n`;
  const asking = `request = function() return wrk.format(nil, nil, nil, body()) end\n`;
  await writeFile(script, `${headers}local function body() ${body} end\n${asking}${REPORT}`);
  const args = ["-t1", `-c${connections}`, `-d${seconds}s`, "-s", script, url];
  const { stdout } = await run("wrk", args);
  const report = JSON.parse(/^REPORT (.*)$/m.exec(stdout)![1]!) as Record<string, number>;
  return {
    perSecond: (report["answered"]! * 1e6) / report["us"]!,
    p50Ms: report["p50"]! / 1_000,
    p95Ms: report["p95"]! / 1_000,
    p99Ms: report["p99"]! / 1_000,
    answered: report["answered"]!,
    refused: report["refused"]!,
  };
}

async function measureWaiting(servers: Servers, url: string): Promise<Answers["memory"]> {
  const { hostname, port } = new URL(url);
  const before = await servers.ask("memory");
  const sockets: Socket[] = [];
  const head = `POST /v1/buckets/paused/draw HTTP/1.1\r\nhost: ${hostname}:${port}\r\n`;
  const request = `${head}content-type: application/json\r\ncontent-length: 2\r\n\r\n{}`;
  while (sockets.length < WAITING) {
    const some = Array.from({ length: 200 }, () => connect(Number(port), hostname));
    await Promise.all(some.map((socket) => once(socket, "connect")));
    for (const socket of some) socket.write(request);
    sockets.push(...some);
  }
  while ((await servers.ask("waiting")) < WAITING) await pause(50);
  const after = await servers.ask("memory");
  for (const socket of sockets) socket.destroy();
  while ((await servers.ask("waiting")) > 0) await pause(50);
  return {
    rss: (after.rss - before.rss) / WAITING,
    heap: (after.heap - before.heap) / WAITING,
  };
}
