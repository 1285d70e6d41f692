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
import { problemOf, refuseExpectation, rejectUnparsed, sendProblem } from "../problem.ts";

export function createApp(read: ReadServerOptions): FastifyInstance {
  const { tls, logger, bodyLimit, keepAliveTimeoutMs, trustProxy } = read;
  const common: FastifyServerOptions = {
    bodyLimit,
    logController: new LogController({ disableRequestLogging: true }),
    // The id of a slot contains the keys of its call. Node accepts 16 KiB of headers.
    routerOptions: { caseSensitive: true, maxParamLength: 8_192 },
    forceCloseConnections: "idle",
    ...(keepAliveTimeoutMs !== undefined && { keepAliveTimeout: keepAliveTimeoutMs }),
    ...(trustProxy !== undefined && { trustProxy: proxiesOf(trustProxy) }),
    // Errors that occur before a route is found, and before there is a request.
    frameworkErrors: (error, _request, reply) => sendProblem(reply, problemOf(error)),
    clientErrorHandler: rejectUnparsed,
    // Requests are neither changed nor converted: unknown fields stay, and types must match.
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
  // Otherwise Node answers these itself, before any hook.
  app.server.on("checkExpectation", refuseExpectation);
  // Forms of other sites can send these types. Only JSON is accepted.
  app.removeContentTypeParser(["application/json", "text/plain"]);
  const readJson = app.getDefaultJsonParser("error", "error");
  app.addContentTypeParser<string>(
    "application/json",
    { parseAs: "string" },
    (request, text, done) => {
      // Clients that send JSON also declare it for an empty body.
      if (text === "") done(null, null);
      else void readJson(request, text, done);
    },
  );
  // The schemas of responses only document them. Fields without a schema are kept.
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

/** Routes that check their query. Scrapers and health checks add custom parameters, and browsers add some to pages. */
const OF_THIS_SERVER = /^\/(?:api\/v1|v1\/(?:buckets|slots|queues|draw))(?:\/|$)/;
const NO_QUERY = { type: "object", additionalProperties: false, properties: {} } as const;

function proxiesOf(trustProxy: NonNullable<ReadServerOptions["trustProxy"]>) {
  return typeof trustProxy === "object" ? [...trustProxy] : trustProxy;
}

/** Closes connections without a request. Node counts them as busy, so they would delay the shutdown. */
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

/** Converts the texts of a query to numbers and booleans where the route's schema has these types. */
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

/** The content security policy of this server's pages. They may only load its own files and send requests to it. */
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

/**
 * Logs one line for each request. It contains no header, and only the path of the URL, so neither tokens nor queries.
 */
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
