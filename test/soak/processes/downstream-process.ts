/**
 * The downstream. It has a process of its own: next to other work, it would see calls later than they arrived. It logs
 * each call on the machine's clock, and gives the kind of answer that the soak asks for.
 */
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { createMachineClock } from "../../../bench/fleet/machine-clock.ts";
import { readClocks } from "../clocks.ts";
import type { Answer, Call } from "../records.ts";
import type { FromDownstream, ToDownstream } from "./messages.ts";
import { WARM_UP_PATH } from "./send-call.ts";

const REPORT_EVERY_MS = 100;
/** The Retry-After of a refusal, in s: longer than a storm lasts. */
const RETRY_AFTER = "2";
const DRIPS = 5;
const DRIP_EVERY_MS = 40;

const nowMs = createMachineClock();
const hung = new Set<ServerResponse>();
let answer: Answer = "ok";
let calls: Call[] = [];

function send(message: FromDownstream): void {
  process.send?.(message);
}

const numberOf = (value: string | string[] | undefined): number | undefined =>
  value === undefined ? undefined : Number(value);

function handle(request: IncomingMessage, response: ServerResponse): void {
  if (request.url === WARM_UP_PATH) return void response.end();
  const arrivedMs = nowMs();
  const { headers } = request;
  calls.push({
    arrivedMs,
    leftMs: Number(headers["x-left-ms"]),
    slotMs: numberOf(headers["x-slot-ms"]),
    pid: Number(headers["x-pid"]),
    job: numberOf(headers["x-job"]),
    answer,
    attempt: numberOf(headers["x-attempt"]),
    tenant: headers["x-tenant"] as string | undefined,
  });
  // A caller that hangs up gets no answer.
  request.on("error", () => undefined).resume();
  response.on("error", () => undefined);
  if (answer === "ok") response.end("ok");
  else if (answer === "refused") response.writeHead(429, { "retry-after": RETRY_AFTER }).end();
  else if (answer === "reset") request.socket.resetAndDestroy();
  else if (answer === "dripped") drip(response, DRIPS);
  else hung.add(response.once("close", () => hung.delete(response)));
}

function drip(response: ServerResponse, left: number): void {
  if (response.destroyed) return;
  if (left === 0) return void response.end();
  response.write(".");
  setTimeout(() => drip(response, left - 1), DRIP_EVERY_MS);
}

function report(isAsked: boolean): void {
  send({ kind: "report", calls, clock: readClocks(nowMs), isAsked });
  calls = [];
}

const server = createServer(handle).listen(0, "127.0.0.1");
await once(server, "listening");
setInterval(() => report(false), REPORT_EVERY_MS);
process.on("message", (message) => {
  const request = message as ToDownstream;
  if (request.kind === "report") return report(true);
  answer = request.as;
  if (answer === "ok") for (const response of hung) response.destroy();
  send({ kind: "answering", as: answer });
});
send({ kind: "listening", url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
