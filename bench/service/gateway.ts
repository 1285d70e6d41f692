/** Compares a forward with Portkey's gateway, alternately, with requests that both accept. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import type { Flags } from "../flags.ts";
import type { Bench } from "../fleet/run-load.ts";
import { rowOf } from "../promises.ts";
import type { Table } from "../table.ts";
import { start } from "./servers.ts";
import { compare, load, type Requests } from "./wrk.ts";

const PATH = "/v1/chat/completions";
const BODY = JSON.stringify({ model: "m", messages: [{ role: "user", content: "How are you?" }] });

/** Portkey's gateway is not a dependency: `PORTKEY_GATEWAY` names the file that starts it. */
export async function measureGateway({ redisUrl }: Bench, { effort }: Flags): Promise<Table[]> {
  const { PORTKEY_GATEWAY: file } = process.env;
  if (file === undefined) {
    console.log(
      "The forward was not compared with Portkey's gateway: install @portkey-ai/gateway anywhere, and name its build/start-server.js in PORTKEY_GATEWAY.\n",
    );
    return [];
  }
  const { rounds, throughputSeconds: seconds } = effort;
  const upstream = await start(redisUrl, "upstream");
  const servers = await start(redisUrl, upstream.ready.plain);
  const gateway = await startGateway(file);
  const common = { connections: 10, body: `return '${BODY}'`, seconds };
  const straight: Requests = { ...common, url: `${upstream.ready.plain}${PATH}` };
  const forward: Requests = { ...common, url: `${servers.ready.sluice}/open${PATH}` };
  const portkey: Requests = {
    ...common,
    url: `${gateway.url}${PATH}`,
    headers: {
      authorization: "Bearer key",
      "x-portkey-provider": "openai",
      "x-portkey-custom-host": `${upstream.ready.plain}/v1`,
    },
  };
  try {
    const { mine, theirs, ratio } = await compare(forward, portkey, rounds);
    if (mine.refused + theirs.refused > 0) throw new Error("not all requests were answered 200");
    const least = await load(straight);
    return [
      {
        title: "A forward, 10 connections, beside Portkey's gateway",
        rows: [
          rowOf("Portkey's gateway, requests a second", theirs.perSecond, { digits: 0 }),
          rowOf("the forward, requests a second", mine.perSecond, { digits: 0 }),
          rowOf("times those of the gateway", ratio, { digits: 2, bound: { atLeast: 3 } }),
          rowOf("straight from the upstream, median, ms", least.p50Ms, { digits: 2 }),
          rowOf("added by the gateway", theirs.p50Ms - least.p50Ms, { digits: 2 }),
          rowOf("added by the forward", mine.p50Ms - least.p50Ms, { digits: 2 }),
          rowOf("straight from the upstream, 99th percentile, ms", least.p99Ms, { digits: 2 }),
          rowOf("added by the gateway", theirs.p99Ms - least.p99Ms, { digits: 2 }),
          rowOf("added by the forward", mine.p99Ms - least.p99Ms, { digits: 2 }),
        ],
      },
    ];
  } finally {
    await gateway.end();
    await servers.end();
    await upstream.end();
  }
}

async function startGateway(
  file: string,
): Promise<{ readonly url: string; readonly end: () => Promise<void> }> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const args = [file, `--port=${port}`, "--headless"];
  const child = spawn(process.execPath, args, { stdio: "ignore" });
  const ended = once(child, "exit");
  const isReady = (): Promise<boolean> =>
    fetch(url).then(
      () => true,
      () => false,
    );
  while (!(await isReady())) {
    if (child.exitCode !== null) throw new Error(`${file} ended with ${child.exitCode}`);
    await pause(100);
  }
  return {
    url,
    async end() {
      child.kill();
      await ended;
    },
  };
}

async function freePort(): Promise<number> {
  const server = createServer();
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  await once(server.close(), "close");
  return port;
}
