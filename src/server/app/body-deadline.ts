/**
 * Ends requests whose body does not arrive. Otherwise each of them would occupy its connection,
 * even without a token.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { rejectUnparsed } from "../problem.ts";
import { isAuthenticated } from "../access/access.ts";

/**
 * The time limit for the complete body of a request without a token. It also limits the rest of a
 * body whose request was already answered.
 */
const STRANGER_MS = 10_000;
/** For any other body, how long the client may send nothing. */
const SILENT_MS = 30_000;
const SWEEP_MS = 1_000;

interface AwaitedBody {
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  readonly beganMs: number;
  /** The time at which a check first found that the request was answered. */
  answeredMs: number | undefined;
  /** The time at which a check last found a new byte, and the number of bytes by then. */
  lastByteMs: number;
  bytes: number;
}

/** Install these deadlines before any other hook. */
export function installBodyDeadlines(app: FastifyInstance): void {
  const awaited = new Set<AwaitedBody>();
  const sweeping = setInterval(() => {
    const nowMs = performance.now();
    for (const body of awaited) {
      const isWhole = body.request.raw.complete;
      if (!isWhole && !isLate(body, nowMs)) continue;
      awaited.delete(body);
      if (!isWhole) end(body);
    }
  }, SWEEP_MS);
  sweeping.unref();
  app.addHook("onClose", async () => clearInterval(sweeping));
  app.addHook("onRequest", (request, reply, done) => {
    const { headers, socket } = request.raw;
    if (headers["transfer-encoding"] !== undefined || (headers["content-length"] ?? "0") !== "0") {
      const nowMs = performance.now();
      const bytes = socket.bytesRead;
      const times = { beganMs: nowMs, answeredMs: undefined, lastByteMs: nowMs };
      const body: AwaitedBody = { request, reply, ...times, bytes };
      awaited.add(body);
      request.raw.once("close", () => awaited.delete(body));
    }
    done();
  });
}

function isLate(body: AwaitedBody, nowMs: number): boolean {
  const { request, reply, beganMs } = body;
  const { raw } = request;
  if (!isAuthenticated(request)) return nowMs - beganMs >= STRANGER_MS;
  if (reply.raw.writableEnded) return nowMs - (body.answeredMs ??= nowMs) >= STRANGER_MS;
  // If unread bytes remain, the server itself is slow, or the upstream of a forward is.
  if (raw.socket.bytesRead !== body.bytes || raw.readableLength > 0) {
    body.bytes = raw.socket.bytesRead;
    body.lastByteMs = nowMs;
  }
  return nowMs - body.lastByteMs >= SILENT_MS;
}

function end({ request, reply }: AwaitedBody): void {
  const { socket } = request.raw;
  const isNext = reply.raw.socket === socket && !reply.raw.headersSent;
  const timeout = Object.assign(new Error("the body did not arrive"), {
    code: "ERR_HTTP_REQUEST_TIMEOUT",
  });
  if (isNext) rejectUnparsed(timeout, socket);
  else socket.destroy();
}
