/** Ends requests whose body does not come: else each would hold its connection, also without a token. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { refuseUnread } from "../problem.ts";
import { isLetIn } from "../access/access.ts";

/** How long all of a body may take whose sender showed no token, and the rest of one whose request is answered already. */
const STRANGER_MS = 10_000;
/** How long the sender of any other body may be silent. */
const SILENT_MS = 30_000;
const SWEEP_MS = 1_000;

interface AwaitedBody {
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  readonly beganMs: number;
  /** When its request was first seen to be answered. */
  answeredMs: number | undefined;
  /** When a byte was last seen to have come, and how many had. */
  heardMs: number;
  bytes: number;
}

/** Call it before anything else adds a hook. */
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
      const times = { beganMs: nowMs, answeredMs: undefined, heardMs: nowMs };
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
  if (!isLetIn(request)) return nowMs - beganMs >= STRANGER_MS;
  if (reply.raw.writableEnded) return nowMs - (body.answeredMs ??= nowMs) >= STRANGER_MS;
  // What has come and was not read yet shows that the server itself is slow, or the upstream of a forward.
  if (raw.socket.bytesRead !== body.bytes || raw.readableLength > 0) {
    body.bytes = raw.socket.bytesRead;
    body.heardMs = nowMs;
  }
  return nowMs - body.heardMs >= SILENT_MS;
}

function end({ request, reply }: AwaitedBody): void {
  const { socket } = request.raw;
  const isNext = reply.raw.socket === socket && !reply.raw.headersSent;
  const timeout = Object.assign(new Error("the body did not come"), {
    code: "ERR_HTTP_REQUEST_TIMEOUT",
  });
  if (isNext) refuseUnread(timeout, socket);
  else socket.destroy();
}
