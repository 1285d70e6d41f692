/**
 * Fastify 5 as far as routes of your own need it. It comes with this package, so its types are named here instead of
 * imported: what your program has of Fastify may be of another version.
 */
import type { IncomingHttpHeaders, IncomingMessage, Server, ServerResponse } from "node:http";

/** A pino logger, or one like it. */
export interface ServerLogger {
  level: string;
  fatal: LogMethod;
  error: LogMethod;
  warn: LogMethod;
  info: LogMethod;
  debug: LogMethod;
  trace: LogMethod;
  silent: LogMethod;
  child(bindings: Record<string, unknown>, options?: object): ServerLogger;
}

interface LogMethod {
  (facts: unknown, message?: string, ...args: unknown[]): void;
  (message: string, ...args: unknown[]): void;
}

/** The server of Fastify, for routes and hooks of your own. At run time, it has all that Fastify 5 has. */
export interface ServerApp {
  get(path: string, options: AddedRoute, handler: RouteHandler): unknown;
  post(path: string, options: AddedRoute, handler: RouteHandler): unknown;
  put(path: string, options: AddedRoute, handler: RouteHandler): unknown;
  patch(path: string, options: AddedRoute, handler: RouteHandler): unknown;
  delete(path: string, options: AddedRoute, handler: RouteHandler): unknown;
  head(path: string, options: AddedRoute, handler: RouteHandler): unknown;
  options(path: string, options: AddedRoute, handler: RouteHandler): unknown;
  addHook(
    name: "onRequest" | "preHandler" | "onResponse",
    hook: (request: ServerRequest, reply: ServerReply, done: (error?: Error) => void) => unknown,
  ): unknown;
  addHook(name: "onClose", hook: () => Promise<unknown>): unknown;
  readonly server: Server;
  readonly log: ServerLogger;
}

/** What a route says of itself. */
export interface AddedRoute {
  readonly config: {
    /** What the token of a request has to be for; `"nothing"` opens the route to everybody. */
    readonly needs: "view" | "act" | "draw" | "enqueue" | "nothing";
    /** The parameter of the path that names a bucket; it must be in the scope of the token. */
    readonly bucket?: string;
    /** The parameter of the path that names a queue; it must be in the scope of the token. */
    readonly queue?: string;
  };
  /** JSON Schemas of the request and of its answers, as Fastify has them. */
  readonly schema?: object;
  readonly bodyLimit?: number;
}

/** Returns what is answered, as JSON unless it is a text. */
export type RouteHandler = (request: ServerRequest, reply: ServerReply) => unknown;

export interface ServerRequest {
  readonly method: string;
  readonly url: string;
  readonly params: unknown;
  readonly query: unknown;
  readonly body: unknown;
  readonly headers: IncomingHttpHeaders;
  /** The address of the client: with `trustProxy`, as the proxy says it. */
  readonly ip: string;
  readonly log: ServerLogger;
  readonly raw: IncomingMessage;
}

export interface ServerReply {
  code(status: number): ServerReply;
  header(name: string, value: string | number | readonly string[]): ServerReply;
  type(contentType: string): ServerReply;
  redirect(url: string, status?: number): ServerReply;
  send(body?: unknown): ServerReply;
  readonly raw: ServerResponse;
}
