import type { Socket } from "node:net";
import {
  fastify,
  LogController,
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifySchema,
  type FastifyServerOptions,
  type preValidationHookHandler,
} from "fastify";
import { QUIET_PATHS } from "../health/health.ts";
import type { ReadServerOptions } from "../options.ts";
import { sayInJson } from "../../operations/text.ts";
import { problemOf, refuseExpectation, rejectUnparsed, sendProblem } from "../problem.ts";

export function createApp(read: ReadServerOptions): FastifyInstance {
  const lazySchemas = new WeakSet<object>();
  const { tls, logger, bodyLimit, keepAliveTimeoutMs, trustProxy } = read;
  const common: FastifyServerOptions = {
    bodyLimit,
    logController: new LogController({ disableRequestLogging: true }),
    // Allow long path parameters, because a slot id contains the keys of its call. Node accepts 16
    // KiB of headers.
    routerOptions: { caseSensitive: true, maxParamLength: 8_192 },
    forceCloseConnections: "idle",
    ...(keepAliveTimeoutMs !== undefined && { keepAliveTimeout: keepAliveTimeoutMs }),
    ...(trustProxy !== undefined && { trustProxy: proxiesOf(trustProxy) }),
    // The next two handlers cover errors that occur before a route is found, or before there is a
    // request.
    frameworkErrors: (error, _request, reply) => sendProblem(reply, problemOf(error)),
    clientErrorHandler: rejectUnparsed,
    // Never change or convert a request: unknown fields stay, and types must match.
    ajv: {
      customOptions: { removeAdditional: false, coerceTypes: false, verbose: true },
      plugins: [(ajv) => compileOnFirstUse(ajv, lazySchemas)],
    },
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
  // Without this listener, Node would respond itself before any hook runs.
  app.server.on("checkExpectation", refuseExpectation);
  // Accept only JSON, because forms of other sites can send the other types.
  app.removeContentTypeParser(["application/json", "text/plain"]);
  const readJson = app.getDefaultJsonParser("error", "error");
  app.addContentTypeParser<string>(
    "application/json",
    { parseAs: "string" },
    (request, text, done) => {
      // Accept an empty body, because clients that send JSON declare that type for empty bodies
      // too.
      if (text === "") done(null, null);
      else void readJson(request, text, done);
    },
  );
  // Response schemas are only documentation, so fields without a schema are kept.
  app.setSerializerCompiler(() => (value) => JSON.stringify(value, sayInJson));
  app.setReplySerializer((value) => JSON.stringify(value, sayInJson));
  app.addHook("onRoute", (route) => {
    if (route.schema?.summary !== undefined && OF_THIS_SERVER.test(route.url)) {
      route.schema.querystring ??= NO_QUERY;
      for (const schema of schemasOf(route.schema)) lazySchemas.add(schema);
    }
    const schema = route.schema?.querystring as QuerySchema | undefined;
    if (schema?.properties === undefined) return;
    const read = readQuery(schema.properties);
    route.preValidation = [read, ...[route.preValidation ?? []].flat()];
  });
  return app;
}

/**
 * Matches the routes that reject unknown query parameters. On other routes, scrapers, health checks
 * and browsers add custom parameters.
 */
const OF_THIS_SERVER = /^\/(?:api\/v1|v1\/(?:buckets|slots|queues|draw))(?:\/|$)/;
const NO_QUERY = { type: "object", additionalProperties: false, properties: {} } as const;

/** Returns the schemas of a request's parts. A body can have one for each content type. */
function schemasOf({ body, params, querystring }: FastifySchema): readonly object[] {
  const { content } = (body ?? {}) as { content?: Record<string, { schema: object }> };
  const bodies =
    content === undefined ? [body] : Object.values(content).map(({ schema }) => schema);
  return [...bodies, params, querystring].filter(
    (schema) => typeof schema === "object" && schema !== null,
  );
}

interface Compiler {
  compile(schema: object): Validator;
}

interface Validator {
  (data: unknown): unknown;
  errors?: unknown;
}

/**
 * Makes a compiler delay these schemas until their first request. To compile the schemas of all routes takes most of the
 * time in which a server starts. Schemas of custom routes are still compiled then, so that a wrong one is reported early.
 */
function compileOnFirstUse<Ajv>(ajv: Ajv, lazySchemas: WeakSet<object>): Ajv {
  const compiler = ajv as Compiler;
  const compile = compiler.compile.bind(compiler);
  compiler.compile = (schema) => {
    if (!lazySchemas.has(schema)) return compile(schema);
    let compiled: Validator | undefined;
    const validate: Validator = (data) => {
      compiled ??= compile(schema);
      const isValid = compiled(data);
      validate.errors = compiled.errors;
      return isValid;
    };
    return validate;
  };
  return ajv;
}

function proxiesOf(trustProxy: NonNullable<ReadServerOptions["trustProxy"]>) {
  return typeof trustProxy === "object" ? [...trustProxy] : trustProxy;
}

/**
 * Closes connections that have sent no request. Node counts these connections as busy, so they
 * would delay the shutdown.
 */
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

/** Converts query values to numbers and booleans where the route's schema has these types. */
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

/**
 * The content security policy of this server's pages. The pages may load files only from this
 * server, and send requests only to it.
 */
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
 * Logs one line for each request. The line contains no header and no query, and so no token; of the
 * URL it contains only the path.
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
