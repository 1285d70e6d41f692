import type { Socket } from "node:net";
import {
  fastify,
  LogController,
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyServerOptions,
  type preValidationHookHandler,
} from "fastify";
import { QUIET_PATHS } from "../health/health.ts";
import type { ReadServerOptions } from "../options.ts";
import { sayInJson } from "../../operations/text.ts";
import { problemOf, refuseExpectation, refuseUnread, sendProblem } from "../problem.ts";

export function createApp(read: ReadServerOptions): FastifyInstance {
  const { tls, logger, bodyLimit, keepAliveTimeoutMs, trustProxy } = read;
  const common: FastifyServerOptions = {
    bodyLimit,
    logController: new LogController({ disableRequestLogging: true }),
    // The id of a slot holds the keys of its call; Node takes 16 KiB of headers.
    routerOptions: { caseSensitive: true, maxParamLength: 8_192 },
    forceCloseConnections: "idle",
    ...(keepAliveTimeoutMs !== undefined && { keepAliveTimeout: keepAliveTimeoutMs }),
    ...(trustProxy !== undefined && { trustProxy: proxiesOf(trustProxy) }),
    // Errors from before a route is found, and from before there is a request.
    frameworkErrors: (error, _request, reply) => sendProblem(reply, problemOf(error)),
    clientErrorHandler: refuseUnread,
    // Nothing is dropped from what was sent, or read as what it is not.
    ajv: { customOptions: { removeAdditional: false, coerceTypes: false, verbose: true } },
    ...(logger === undefined || logger === false
      ? { logger: logger === false ? false : { redact: SECRET_HEADERS } }
      : { loggerInstance: logger as FastifyBaseLogger }),
  };
  const app: FastifyInstance =
    tls === undefined
      ? fastify(common)
      : (fastify({
          ...common,
          https: { key: bytesOf(tls.key), cert: bytesOf(tls.cert) },
        } as object) as FastifyInstance);
  // Node would answer these by itself, before any hook.
  app.server.on("checkExpectation", refuseExpectation);
  // What a form of another site can send: JSON alone is read.
  app.removeContentTypeParser(["application/json", "text/plain"]);
  const readJson = app.getDefaultJsonParser("error", "error");
  app.addContentTypeParser<string>(
    "application/json",
    { parseAs: "string" },
    (request, text, done) => {
      // Clients that send JSON say so of an empty body, too.
      if (text === "") done(null, null);
      else void readJson(request, text, done);
    },
  );
  // The schemas of answers are for the description; what they do not name is kept.
  app.setSerializerCompiler(() => (value) => JSON.stringify(value, sayInJson));
  app.setReplySerializer((value) => JSON.stringify(value, sayInJson));
  app.addHook("onRoute", (route) => {
    if (route.schema?.summary !== undefined && OF_THIS_SERVER.test(route.url)) {
      route.schema.querystring ??= NO_QUERY;
    }
    const schema = route.schema?.querystring as QuerySchema | undefined;
    if (schema?.properties === undefined) return;
    const read = readQuery(schema.properties);
    route.preValidation = [read, ...[route.preValidation ?? []].flat()];
  });
  return app;
}

/** Routes whose query is checked. Scrapers and health checks add parameters of their own, and browsers do to pages. */
const OF_THIS_SERVER = /^\/(?:api\/v1|v1\/(?:buckets|slots|queues|draw))(?:\/|$)/;
const NO_QUERY = { type: "object", additionalProperties: false, properties: {} } as const;

function proxiesOf(trustProxy: NonNullable<ReadServerOptions["trustProxy"]>) {
  return typeof trustProxy === "object" ? [...trustProxy] : trustProxy;
}

/** Connections without a request would delay the shutdown, because Node takes them for busy ones. */
export function closeUnused(app: FastifyInstance): void {
  const open = new Set<Socket>();
  app.server.on("connection", (socket: Socket) => {
    open.add(socket);
    socket.once("close", () => open.delete(socket));
  });
  app.addHook("preClose", async () => {
    for (const socket of open) if (socket.bytesRead === 0) socket.destroy();
  });
}

export function bytesOf(pem: string | Uint8Array): string | Buffer {
  return typeof pem === "string" ? pem : Buffer.from(pem);
}

/** A query has texts alone; numbers and booleans are read where the schema of the route has them. */
function readQuery(properties: Properties): preValidationHookHandler {
  const types = Object.entries(properties).map(([name, { type }]) => [name, type] as const);
  return ({ query }, _reply, done) => {
    const asked = query as Record<string, unknown>;
    for (const [name, type] of types) {
      const value = asked[name];
      if (type === "integer" && typeof value === "string" && /^\d{1,16}$/.test(value)) {
        asked[name] = Number(value);
      }
      if (type === "boolean" && (value === "true" || value === "false"))
        asked[name] = value === "true";
    }
    done();
  };
}

type Properties = Readonly<Record<string, { readonly type?: string }>>;

interface QuerySchema {
  readonly properties?: Properties;
}

const SECRET_HEADERS = ["authorization", "cookie", "x-api-key", "api-key", "x-sluice-token"].map(
  (name) => `req.headers["${name}"]`,
);

/** What pages of this server may do: nothing but load its own files and ask it. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

export function installHeaders(app: FastifyInstance, { tls }: ReadServerOptions): void {
  const headers = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    ...(tls === undefined ? {} : { "strict-transport-security": "max-age=31536000" }),
  };
  app.addHook("onRequest", (_request, reply, done) => {
    void reply.headers(headers);
    done();
  });
}

/** One line for each request. No header is in it, and of the URL only the path: neither tokens nor what was asked for. */
export function installLog(app: FastifyInstance): void {
  app.addHook("onResponse", (request, reply, done) => {
    const [path = ""] = request.url.split("?", 1);
    if (!QUIET_PATHS.has(path)) {
      const { method, ip } = request;
      const { statusCode: status, elapsedTime } = reply;
      request.log.info({ method, path, status, ms: Math.round(elapsedTime), ip }, "request");
    }
    done();
  });
}
