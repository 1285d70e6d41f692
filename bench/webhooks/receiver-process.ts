/**
 * Receives webhooks in a separate process. "/ok/…" answers immediately, "/shaky/…" answers 500 to every third call,
 * "/slow/…" never answers.
 */
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import process from "node:process";
import { createMachineClock } from "../fleet/machine-clock.ts";
import type { Arrival, FromReceiver, ToReceiver } from "./messages.ts";

const nowMs = createMachineClock();
let arrivals: Arrival[] = [];
let wanted = 0;
let shaky = 0;
let usedBefore = process.cpuUsage();

function say(message: FromReceiver): void {
  process.send?.(message);
}

function answer(path: string, response: ServerResponse): void {
  if (path.startsWith("/slow")) return;
  const isRefused = path.startsWith("/shaky") && (shaky += 1) % 3 === 0;
  response.writeHead(isRefused ? 500 : 200, { "content-type": "text/plain" }).end("ok");
}

const server = createServer((request, response) => {
  const atMs = nowMs();
  const { url: path = "/" } = request;
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () => {
    const sent = /"sentMs":([\d.]+)/.exec(Buffer.concat(chunks).toString("latin1"))?.[1];
    arrivals.push({ path, atMs, sentMs: sent === undefined ? undefined : Number(sent) });
    answer(path, response);
    if (arrivals.length === wanted) say({ kind: "all", tookMs: atMs - arrivals[0]!.atMs });
  });
});
server.keepAliveTimeout = 60_000;
server.listen(0, "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  say({ kind: "listening", url: `http://127.0.0.1:${port}` });
});

process.on("message", (message) => {
  const told = message as ToReceiver;
  if (told.kind === "expect") {
    arrivals = [];
    wanted = told.count;
    shaky = 0;
    usedBefore = process.cpuUsage();
    return;
  }
  const { user, system } = process.cpuUsage(usedBefore);
  say({ kind: "arrivals", arrivals, cpuUs: user + system });
});
process.on("disconnect", () => process.exit());
