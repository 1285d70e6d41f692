/** The HTTP server: health, facts, steering and the dashboard. `createServer()` wires it. */
import { lstat, rm } from "node:fs/promises";
import { createConnection, type Socket } from "node:net";
import swagger, { type FastifyDynamicSwaggerOptions } from "@fastify/swagger";
import Fastify, {
  LogController,
  type FastifyInstance,
  type FastifyServerOptions,
  type preValidationHookHandler,
} from "fastify";
import type { Sluice } from "../sluice.ts";
import { partsOf } from "../sluice/parts.ts";
import { decideRoutes } from "./decide/decide.ts";
import { bullBoardRoutes } from "./bull-board/bull-board.ts";
import {
  createGrpcServer,
  type GrpcServer,
  type GrpcServerOptions,
} from "./decide/envoy/grpc-server.ts";
import { createFound, type Found } from "./decide/found.ts";
import { forwardRoutes } from "./forward/forward.ts";
import { sessionRoutes } from "./access/session.ts";
import { installAccess, type Gate } from "./access/access.ts";
import { installBodyDeadlines } from "./access/body-deadline.ts";
import { dashboardRoutes } from "./dashboard/dashboard.ts";
import { tokenSearch } from "./access/token-search.ts";
import { factRoutes } from "./facts/facts.ts";
import { healthRoutes, QUIET_PATHS, whyNotReady } from "./health.ts";
import { metricsRoute } from "./metrics.ts";
import {
  isLoopback,
  readServerOptions,
  type ReadServerOptions,
  type ServerOptions,
} from "./options.ts";
import { installProblems, refuseUnread, sayInJson, sendProblem, problemOf } from "./problem.ts";

/** Serves over HTTP what a sluice knows and does. End it with `close()`. */
export interface SluiceServer {
  /** The server of fastify, for routes of your own: each says in its `config` what it `needs`. */
  readonly app: FastifyInstance;
  /**
   * Begins to listen.
   *
   * @throws an error of Node when the address is taken or may not be used.
   */
  listen(): Promise<{
    /** `"http://127.0.0.1:3010"`; of a socket, `"unix:/run/sluice.sock"`. */
    readonly url: string;
    /** Where gRPC is: `"127.0.0.1:8081"`; undefined without it. */
    readonly grpc: string | undefined;
  }>;
  /** Takes no more requests and waits up to ten seconds for those under way. The sluice stays open. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * A server for a sluice. It listens after `listen()`.
 *
 * @throws {@link InvalidOptionError} when an option can never work, or there are neither tokens nor `insecureLocal` on loopback.
 */
export async function createServer(
  sluice: Sluice,
  options: ServerOptions = {},
): Promise<SluiceServer> {
  const where = "createServer()";
  const { insight } = partsOf(where, sluice);
  const read = readServerOptions(where, options);
  const app = createApp(read);
  let closing: Promise<void> | undefined;

  closeUnused(app);
  installBodyDeadlines(app);
  installProblems(app);
  installHeaders(app, read);
  if (read.logger !== false) installLog(app);
  const gate = installAccess(app, read);
  const servers = read.publicUrl && [{ url: read.publicUrl.href.replace(/\/$/, "") }];
  await app.register(swagger, { openapi: { ...DESCRIPTION, ...(servers && { servers }) } });
  app.get("/api/openapi.json", { config: { needs: "view" }, schema: { hide: true } }, () =>
    app.swagger(),
  );
  sessionRoutes(app, gate);
  factRoutes(app, { sluice });
  dashboardRoutes(app);
  bullBoardRoutes(app, { sluice, insight });
  healthRoutes(app, { sluice, isClosing: () => closing !== undefined });
  metricsRoute(app, { sluice });
  const found = createFound(sluice);
  decideRoutes(app, { found, secrets: insight, notes: insight });
  forwardRoutes(app, { forwards: read.forwards, found, holdsToken: tokenSearch(read.tokens) });
  const isReady = async (): Promise<boolean> =>
    closing === undefined && (await whyNotReady(sluice)).length === 0;
  const grpc = await grpcServer({
    where,
    app,
    gate,
    found,
    read,
    isReady,
    declare: (name, policy) => sluice.bucket(name, policy),
  });

  async function close(): Promise<void> {
    const deadline = setTimeout(() => {
      app.server.closeAllConnections();
      grpc?.closeNow();
    }, CLOSE_MS);
    try {
      await Promise.all([app.close(), grpc?.close()]);
    } finally {
      clearTimeout(deadline);
    }
  }

  return {
    app,
    async listen() {
      const url = await listenOverHttp(app, read);
      return { url, grpc: await grpc?.listen() };
    },
    close: () => (closing ??= close()),
    [Symbol.asyncDispose]: () => (closing ??= close()),
  };
}

async function listenOverHttp(app: FastifyInstance, read: ReadServerOptions): Promise<string> {
  const { socket, host, port } = read;
  if (socket === undefined) return urlOf(await app.listen({ host, port }), read);
  await removeDeadSocket(socket);
  await app.listen({ path: socket });
  return `unix:${socket}`;
}

interface GrpcParts {
  readonly where: string;
  readonly app: FastifyInstance;
  readonly gate: Gate;
  readonly found: Found;
  readonly read: ReadServerOptions;
  readonly isReady: () => Promise<boolean>;
  readonly declare: GrpcServerOptions["declare"];
}

async function grpcServer(parts: GrpcParts): Promise<GrpcServer | undefined> {
  const { app, read, ...others } = parts;
  const { grpc: options, host, bodyLimit } = read;
  if (options === undefined) return undefined;
  const tls = read.tls && {
    key: Buffer.from(bytesOf(read.tls.key)),
    cert: Buffer.from(bytesOf(read.tls.cert)),
  };
  return createGrpcServer({ ...others, log: app.log, options, host, bodyLimit, tls });
}

const DESCRIPTION = {
  openapi: "3.1.0",
  info: {
    title: "Sluice",
    description: "What waits, why, and who set it; and how to change it.",
    version: "1",
  },
  components: {
    securitySchemes: { token: { type: "http" as const, scheme: "bearer" } },
  },
  security: [{ token: [] }],
} satisfies FastifyDynamicSwaggerOptions["openapi"];

/** How long requests under way have when the server closes. */
const CLOSE_MS = 10_000;

function createApp(read: ReadServerOptions): FastifyInstance {
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
      : { loggerInstance: logger }),
  };
  const app: FastifyInstance =
    tls === undefined
      ? Fastify(common)
      : (Fastify({
          ...common,
          https: { key: bytesOf(tls.key), cert: bytesOf(tls.cert) },
        } as object) as FastifyInstance);
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
    const schema = route.schema?.querystring as QuerySchema | undefined;
    if (schema?.properties === undefined) return;
    const read = readQuery(schema.properties);
    route.preValidation = [read, ...[route.preValidation ?? []].flat()];
  });
  return app;
}

function proxiesOf(trustProxy: NonNullable<ReadServerOptions["trustProxy"]>) {
  return typeof trustProxy === "object" ? [...trustProxy] : trustProxy;
}

/** Connections on which nobody has asked for anything yet would hold the server up: Node takes them for busy ones. */
function closeUnused(app: FastifyInstance): void {
  const open = new Set<Socket>();
  app.server.on("connection", (socket: Socket) => {
    open.add(socket);
    socket.once("close", () => open.delete(socket));
  });
  app.addHook("preClose", async () => {
    for (const socket of open) if (socket.bytesRead === 0) socket.destroy();
  });
}

function bytesOf(pem: string | Uint8Array): string | Buffer {
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

function installHeaders(app: FastifyInstance, { tls }: ReadServerOptions): void {
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
function installLog(app: FastifyInstance): void {
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

/** Fastify names the first address of a wildcard; an address in brackets is as URLs have it. */
function urlOf(listening: string, { host }: ReadServerOptions): string {
  const url = new URL(listening);
  if (host === "localhost" || !isLoopback(host)) return url.origin;
  url.hostname = host.includes(":") ? `[${host}]` : host;
  return url.origin;
}

/** A process that was killed leaves the file of its socket; nobody listens there. */
async function removeDeadSocket(path: string): Promise<void> {
  const isSocket = await lstat(path).then(
    (found) => found.isSocket(),
    () => false,
  );
  if (!isSocket) return;
  const isDead = await new Promise<boolean>((resolve) => {
    const socket = createConnection(path);
    socket.once("connect", () => {
      socket.destroy();
      resolve(false);
    });
    socket.once("error", (error: NodeJS.ErrnoException) => resolve(error.code === "ECONNREFUSED"));
  });
  if (isDead) await rm(path, { force: true });
}
