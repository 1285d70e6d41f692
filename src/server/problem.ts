/** Sends every error as `application/problem+json` (RFC 9457). */
import { STATUS_CODES, type IncomingMessage, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { describeValue } from "../core/describe.ts";
import { BudgetSpentError, InvalidOptionError, remedyOf, SluiceError } from "../core/errors.ts";
import { RefusedError } from "../operations/operation.ts";
import { sayInJson } from "../operations/text.ts";
import { closest } from "../core/input/options.ts";
import { STATUS_OF_CODE, type Problem, type ProblemCode } from "./app/codes.ts";

export { STATUS_OF_CODE };

/**
 * An expected error response, such as "not found" or "forbidden". It is not a fault of the server.
 */
export class HttpProblem extends Error {
  override readonly name = "HttpProblem";
  readonly code: ProblemCode;

  constructor(code: ProblemCode, detail: string) {
    super(detail);
    this.code = code;
  }

  get status(): number {
    return STATUS_OF_CODE[this.code];
  }
}

/** The errors that Fastify raises itself, by HTTP status. */
const REFUSED: Readonly<Record<number, readonly [code: ProblemCode, detail?: string]>> = {
  413: ["ERR_BODY_TOO_LARGE"],
  414: ["ERR_PATH_TOO_LONG", "A part of the path is too long."],
  415: ["ERR_MEDIA_TYPE", 'Send the body as JSON, with "content-type: application/json".'],
};

export function problemOf(error: unknown): Problem {
  if (error instanceof HttpProblem || error instanceof RefusedError)
    return describe(error.code, error.message);
  if (error instanceof SluiceError) return ofSluice(error);
  const { statusCode = 500, message = "" } = error as Partial<FastifyError>;
  const isRefused = error instanceof Error && statusCode >= 400 && statusCode < 500;
  // The message is only logged, because it may reveal internals.
  if (!isRefused) return describe("ERR_INTERNAL", "The server failed; its log says why.");
  const [code, detail = message] = REFUSED[statusCode] ?? ["ERR_BAD_REQUEST"];
  return describe(code, detail);
}

function ofSluice(error: SluiceError): Problem {
  const problem = describe(error.code, error.message);
  if (error instanceof BudgetSpentError) return ofBudget(error, problem);
  const { retryAfterMs } = error as { retryAfterMs?: number };
  const retry = retryAfterMs === undefined ? {} : { retryAfterMs };
  if (!(error instanceof InvalidOptionError)) return { ...problem, ...retry };
  const { option, value } = error;
  return { ...problem, option, value, remedy: remedyOf(error) };
}

/** Adds the facts about a spent budget, and the status that the budget asks for. */
function ofBudget(error: BudgetSpentError, problem: Problem): Problem {
  const { refusalStatus: status, retryAfterMs, limitedBy, unit, amount, spent, resetsAt } = error;
  const facts = { retryAfterMs, limitedBy, unit, amount, spent, resetsAt: resetsAt.toISOString() };
  return { ...problem, status, title: STATUS_CODES[status]!, ...facts };
}

function describe(code: ProblemCode, detail: string): Problem {
  const status = STATUS_OF_CODE[code];
  return { type: "about:blank", title: STATUS_CODES[status] ?? "Error", status, detail, code };
}

export function sendProblem(reply: FastifyReply, problem: Problem): FastifyReply {
  const { status, retryAfterMs } = problem;
  if (retryAfterMs !== undefined) {
    void reply.header("retry-after", Math.max(1, Math.ceil(retryAfterMs / 1_000)));
  } else if (status === 503) void reply.header("retry-after", 1);
  if (status === 401) void reply.header("www-authenticate", 'Bearer realm="sluice"');
  return reply
    .code(status)
    .type("application/problem+json")
    .serializer((value: Problem) => textOf(value))
    .send(problem);
}

function textOf(problem: Problem): string {
  try {
    return JSON.stringify(problem, sayInJson);
  } catch {
    // Describe the value, because it may be nested too deeply for JSON.
    return JSON.stringify({ ...problem, value: describeValue(problem.value) });
  }
}

/** Reads the state after a successful change. If the read fails, the response omits the state. */
export async function readAfterChange<Read>(
  request: FastifyRequest,
  reading: Promise<Read>,
): Promise<Read | undefined> {
  try {
    return await reading;
  } catch (error) {
    request.log.warn({ err: error }, "The change was made; the new state could not be read.");
    return undefined;
  }
}

const UNREAD: Readonly<Record<string, readonly [code: ProblemCode, detail: string]>> = {
  ERR_HTTP_REQUEST_TIMEOUT: ["ERR_REQUEST_TIMEOUT", "The request did not arrive in time."],
  HPE_HEADER_OVERFLOW: ["ERR_HEADERS_TOO_LARGE", "The headers of the request are too long."],
};

/**
 * Responds to bytes that are not HTTP. Closes the connection, because the start of the next request
 * is unknown.
 */
export function rejectUnparsed(error: Error & { readonly code?: string }, socket: Socket): void {
  if (error.code === "ECONNRESET" || socket.destroyed) return;
  const [code, detail] = UNREAD[error.code ?? ""] ?? [
    "ERR_BAD_REQUEST",
    "This is not an HTTP request.",
  ];
  const problem = describe(code, detail);
  const { status } = problem;
  const text = JSON.stringify(problem);
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    "Content-Type: application/problem+json",
    `Content-Length: ${Buffer.byteLength(text)}`,
    "Connection: close",
  ];
  if (socket.writable) socket.write(`${head.join("\r\n")}\r\n\r\n${text}`);
  socket.destroySoon();
}

/**
 * Responds to an `Expect` other than `100-continue`. Closes the connection, because the body may
 * never arrive.
 */
export function refuseExpectation(_request: IncomingMessage, response: ServerResponse): void {
  const problem = describe(
    "ERR_EXPECTATION_FAILED",
    "The only supported expectation is 100-continue.",
  );
  const headers = { "content-type": "application/problem+json", connection: "close" };
  response.writeHead(problem.status, headers).end(JSON.stringify(problem));
}

/** A schema error of Ajv. */
interface SchemaIssue {
  readonly instancePath: string;
  readonly keyword: string;
  readonly message?: string;
  readonly params: Readonly<Record<string, unknown>>;
  readonly data?: unknown;
  readonly parentSchema?: {
    readonly properties?: Readonly<Record<string, unknown>>;
    readonly additionalProperties?: unknown;
  };
}

const WORDS_OF_TYPES: Readonly<Record<string, string>> = {
  integer: "a whole number",
  number: "a number",
  string: "text",
  boolean: "true or false",
  object: "an object",
  array: "a list",
};

function remedyFor({ keyword, message, params }: SchemaIssue): string {
  if (keyword === "required") return "it is needed";
  if (keyword === "enum") {
    const allowed = params["allowedValues"] as readonly unknown[];
    return `give one of ${allowed.map((value) => JSON.stringify(value)).join(", ")}`;
  }
  const [type = ""] = keyword === "type" ? [params["type"]].flat().map(String) : [];
  const words = WORDS_OF_TYPES[type];
  return words === undefined ? `it ${message ?? "has the wrong form"}` : `give ${words}`;
}

/**
 * Returns the name of an unknown field. A misspelled field is probably the reason why another field
 * is missing.
 */
function unknownFieldOf(issue: SchemaIssue): string | undefined {
  const { keyword, params, data, parentSchema: schema } = issue;
  if (keyword === "additionalProperties") return String(params["additionalProperty"]);
  const isClosed = keyword === "required" && schema?.additionalProperties === false;
  if (!isClosed || typeof data !== "object" || data === null) return undefined;
  return Object.keys(data).find((name) => !Object.hasOwn(schema.properties ?? {}, name));
}

function remedyForUnknown(name: string, { parentSchema }: SchemaIssue): string {
  const known = Object.keys(parentSchema?.properties ?? {});
  if (known.length === 0) return "there is no such option; this request takes none";
  const near = closest(name, known);
  const hint = near === undefined ? `the options are ${known.join(", ")}` : `did you mean ${near}?`;
  return `there is no such option; ${hint}`;
}

function invalidRequest(issues: readonly SchemaIssue[], part: string): InvalidOptionError {
  const issue = issues[0]!;
  const { instancePath, keyword, params, data } = issue;
  const where = `the ${part === "querystring" ? "query" : part} of the request`;
  const path = instancePath.slice(1).replaceAll("/", ".");
  const at = (name: unknown): string =>
    [path, name].filter((each) => each !== undefined && each !== "").join(".");
  const unknown = unknownFieldOf(issue);
  if (unknown !== undefined) {
    const value: unknown = Reflect.get(data as object, unknown);
    const remedy = remedyForUnknown(unknown, issue);
    return new InvalidOptionError({ where, option: at(unknown), value, remedy });
  }
  const option = at(params["missingProperty"]);
  return new InvalidOptionError({
    where,
    option: option === "" ? part : option,
    value: keyword === "required" ? undefined : data,
    remedy: remedyFor(issue),
  });
}

/** Handles all errors of this server and its plugins, and all requests without a route. */
export function installProblems(app: FastifyInstance): void {
  app.setSchemaErrorFormatter((issues, part) => invalidRequest(issues as SchemaIssue[], part));
  app.setErrorHandler((error, request: FastifyRequest, reply) => {
    const problem = problemOf(error);
    if (problem.code === "ERR_INTERNAL")
      request.log.error({ err: error }, "A request failed with an internal error.");
    return sendProblem(reply, problem);
  });
  const methodsOf = watchRoutes(app);
  app.setNotFoundHandler((request, reply) => {
    const { method, url } = request;
    const path = url.split("?")[0]!;
    const allowed = methodsOf(path);
    if (allowed.length === 0) {
      const detail = `There is no ${method} ${path}.`;
      return sendProblem(reply, describe("ERR_ROUTE_MISSING", detail));
    }
    void reply.header("allow", allowed.join(", "));
    const detail = `There is no ${method} ${path}; use ${allowed.join(" or ")}.`;
    return sendProblem(reply, describe("ERR_METHOD_NOT_ALLOWED", detail));
  });
}

/** Returns a function that finds the methods of the routes that match a path. */
function watchRoutes(app: FastifyInstance): (path: string) => readonly string[] {
  const routes: { readonly pattern: RegExp; readonly methods: readonly string[] }[] = [];
  app.addHook("onRoute", ({ url, method }) => {
    const pattern = url
      .split("/")
      .map((part) => (part === "*" ? ".*" : part.startsWith(":") ? "[^/]+" : escaped(part)))
      .join("/");
    routes.push({ pattern: new RegExp(`^${pattern}$`), methods: [method].flat() });
  });
  return (path) => {
    const fitting = routes.filter(({ pattern }) => pattern.test(path));
    return [...new Set(fitting.flatMap(({ methods }) => methods))].sort();
  };
}

/** Escapes a text so that a regular expression matches it literally. */
export function escaped(text: string): string {
  return text.replaceAll(/[$()*+.?[\\\]^{|}]/g, String.raw`\$&`);
}
