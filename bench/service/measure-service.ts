/** Compares the HTTP service with a plain route and a bare proxy, alternately. `wrk` sends the requests. */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import type { Flags } from "../flags.ts";
import type { Bench } from "../fleet/run-load.ts";
import { rowOf } from "../promises.ts";
import type { Table } from "../table.ts";
import type { Answers } from "./service-process.ts";
import { start, type Servers } from "./servers.ts";
import { EVERY_MS, measureStreams, STREAMS } from "./streams.ts";
import { compare, load, type Requests } from "./wrk.ts";

const WAITING = 10_000;
const KEYS = 10_000;

export async function measureService({ redisUrl }: Bench, { effort }: Flags): Promise<Table[]> {
  const upstream = await start(redisUrl, "upstream");
  const servers = await start(redisUrl, upstream.ready.plain);
  const { plain, bare, sluice } = servers.ready;
  const { rounds, throughputSeconds: seconds } = effort;
  const to = (url: string, connections: number, body: string): Requests => ({
    url,
    connections,
    body,
    seconds,
  });
  try {
    const body = `return '{}'`;
    const tries = to(`${sluice}/v1/buckets/tries/try`, 200, body);
    const oneKey = await compare(tries, to(plain, 200, body), rounds);
    // Waits until the unused slots of the last turn's unfinished calls have been returned.
    await pause(500);
    const before = await servers.ask("drawn");
    const exact = await load(tries);
    await pause(500);
    const drawn = (await servers.ask("drawn")) - before;
    const random = `return '{"key":"k' .. math.random(${KEYS}) .. '"}'`;
    const keyed = to(`${sluice}/v1/buckets/keys/try`, 200, random);
    const manyKeys = await compare(keyed, to(plain, 200, random), rounds);
    const proxy = await compare(to(`${sluice}/open/`, 10, body), to(bare, 10, body), rounds);
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
  }
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
