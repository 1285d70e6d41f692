import { lstat, rm } from "node:fs/promises";
import { createConnection } from "node:net";
import swagger, { type FastifyDynamicSwaggerOptions } from "@fastify/swagger";
import type { FastifyInstance } from "fastify";
import type { Sluice } from "../sluice/create-sluice.ts";
import { partsOf, type SluiceParts } from "../sluice/parts.ts";
import { jobsRoutes } from "./bull-board/jobs-routes.ts";
import {
  createGrpcServer,
  type GrpcServer,
  type GrpcServerOptions,
} from "./decide/envoy/grpc-server.ts";
import { createFoundBuckets, type FoundBuckets } from "./decide/found-buckets.ts";
import { forwardRoutes } from "./forward/forward.ts";
import { assertMembers } from "./forward/options.ts";
import { sessionRoutes } from "./access/session.ts";
import { installAccess, type Gate } from "./access/access.ts";
import { tokenSearch } from "./access/token-search.ts";
import { installBodyDeadlines } from "./app/body-deadline.ts";
import { dashboardRoutes } from "./dashboard/dashboard.ts";
import { bytesOf, closeUnused, createApp, installHeaders, installLog } from "./app/create-app.ts";

import type { ServerApp } from "./app/server-app.ts";
import { healthRoutes, whyNotReady } from "./health/health.ts";
import { metricsRoute } from "./health/metrics.ts";
import {
  isLoopback,
  readServerOptions,
  type ReadServerOptions,
  type ServerOptions,
} from "./options.ts";
import { installProblems } from "./problem.ts";
import { createFacts } from "../operations/facts.ts";
import { formsModule } from "./operations/forms.ts";
import { operationRoutes } from "./operations/routes.ts";
import { createCallers } from "./decide/caller.ts";
import { drawRoutes } from "./decide/draws.ts";
import { jobRoutes } from "./decide/jobs.ts";
import { slotRoutes } from "./decide/slot-routes.ts";
import { createGivenSlots } from "./decide/slots.ts";
import { workRoutes } from "./decide/work/work-routes.ts";

/** Serves a sluice over HTTP until `close()`. */
export interface SluiceServer {
  /**
   * The Fastify server, for custom routes. Each custom route states the permission that it `needs`
   * in its `config`.
   */
  readonly app: ServerApp;
  /**
   * Starts listening.
   *
   * @throws an error of Node when the address is in use or forbidden.
   */
  listen(): Promise<{
    /**
     * The URL of the server: `"http://127.0.0.1:3010"`. For a socket, `"unix:/run/sluice.sock"`.
     */
    readonly url: string;
    /** The address of the gRPC service: `"127.0.0.1:8081"`. Undefined without gRPC. */
    readonly grpc: string | undefined;
  }>;
  /**
   * Stops accepting requests, and waits up to ten seconds for requests in progress. The sluice
   * stays open.
   */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Creates a server for a sluice. Call `listen()` to start it.
 *
 * @throws {@link InvalidOptionError} when an option can never work, or when there are no tokens and
 * the server is not on loopback with `insecureLocal`.
 */
export async function createServer(
  sluice: Sluice,
  options: ServerOptions = {},
): Promise<SluiceServer> {
  const where = "createServer()";
  const { insight, membersOf, startHandOver } = partsOf(where, sluice);
  const read = readServerOptions(where, options);
  assertMembers(where, read.forwards, membersOf);
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
  const door = { sluice, facts: createFacts(sluice) };
  operationRoutes(app, door, read.mcpAllow);
  dashboardRoutes(app, { "parts/forms.js": formsModule() });
  await jobsRoutes(app, { door, insight });
  healthRoutes(app, { sluice, isClosing: () => closing !== undefined });
  metricsRoute(app, { sluice });
  const found = createFoundBuckets(sluice);
  decideRoutes(app, found, { insight, startHandOver });
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
    app: app as unknown as ServerApp,
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
  readonly found: FoundBuckets;
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
    description: "Reads and changes buckets, queues, workers and webhooks, and draws slots.",
    version: "1",
  },
  components: {
    securitySchemes: { token: { type: "http" as const, scheme: "bearer" } },
  },
  security: [{ token: [] }],
} satisfies FastifyDynamicSwaggerOptions["openapi"];

/** How long the server waits for requests in progress when it closes. */
const CLOSE_MS = 10_000;

/**
 * Fastify returns the first address for a wildcard host. URLs need brackets around an IPv6 address.
 */
function urlOf(listening: string, { host }: ReadServerOptions): string {
  const url = new URL(listening);
  if (host === "localhost" || !isLoopback(host)) return url.origin;
  url.hostname = host.includes(":") ? `[${host}]` : host;
  return url.origin;
}

/** Removes a socket file that a killed process left. No process listens on such a socket. */
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

/** The routes through which programs in any language draw from buckets, enqueue jobs and run them. */
function decideRoutes(
  app: FastifyInstance,
  found: FoundBuckets,
  { insight, startHandOver: start }: Pick<SluiceParts, "insight" | "startHandOver">,
): void {
  const slots = createGivenSlots({ found, secrets: insight });
  const callers = createCallers();
  drawRoutes(app, { found, slots, callers });
  slotRoutes(app, slots);
  void app.register(async (inner) => jobRoutes(inner, { found, notes: insight }));
  workRoutes(app, { found, slots, callers, insight, start });
  app.addHook("preClose", async () => callers.close());
}
