/**
 * Declares the parts of Fastify 5 that custom routes need. The package bundles Fastify, so the
 * types are declared here instead of imported, and your program may use another version of Fastify.
 */
import type { IncomingHttpHeaders, IncomingMessage, Server, ServerResponse } from "node:http";

/** A pino logger, or a compatible one. */
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

/**
 * The Fastify server, for custom routes and hooks. At run time, it has all properties and methods
 * of Fastify 5.
 */
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

/** The options of a custom route. */
export interface AddedRoute {
  readonly config: {
    /** The permission that a request's token needs. `"nothing"` opens the route to everybody. */
    readonly needs: "view" | "act" | "draw" | "enqueue" | "nothing";
    /**
     * The name of the path parameter that contains a bucket's name. The bucket must be in the scope
     * of the token.
     */
    readonly bucket?: string;
    /**
     * The name of the path parameter that contains a queue's name. The queue must be in the scope
     * of the token.
     */
    readonly queue?: string;
  };
  /** JSON Schemas of the request and of its responses, in Fastify's format. */
  readonly schema?: object;
  readonly bodyLimit?: number;
}

/** Returns the response: a text, or a value that is sent as JSON. */
export type RouteHandler = (request: ServerRequest, reply: ServerReply) => unknown;

export interface ServerRequest {
  readonly method: string;
  readonly url: string;
  readonly params: unknown;
  readonly query: unknown;
  readonly body: unknown;
  readonly headers: IncomingHttpHeaders;
  /** The address of the client. With `trustProxy`, the address that the proxy reports. */
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
