import { isIP } from "node:net";
import * as z from "zod";
import { InvalidOptionError } from "../core/errors.ts";
import { LONGEST_MS, NAME, readOptions, wholeNumber } from "../core/input/options.ts";
import type { ServerLogger } from "./app/server-app.ts";
import { GRPC, type GrpcOptions, type ReadGrpcOptions } from "./decide/envoy/options.ts";
import { readForwards, type ForwardOptions, type ReadForward } from "./forward/options.ts";

/** A token, with its role and its scope: the buckets and queues that it may use. */
export interface TokenOptions {
  /**
   * The value in `Authorization: Bearer …`: at least 8 visible ASCII characters. Use 32 random
   * characters.
   */
  readonly token: string;
  /**
   * The role of the token. `"view"` may read. `"act"` may do everything, including changes. `"call"`
   * is for services: it draws and enqueues, and cannot read anything. `"work"` is for workers. It
   * may also take jobs, with their data, and end them.
   */
  readonly role: "view" | "act" | "call" | "work";
  /** The owner of the token, as shown in the change log. */
  readonly name?: string | undefined;
  /** The names of the buckets in the token's scope, or `["*"]`. Defaults to all. */
  readonly buckets?: readonly string[] | undefined;
  /** The names of the queues in the token's scope, or `["*"]`. Defaults to all. */
  readonly queues?: readonly string[] | undefined;
}

export interface TlsOptions {
  /** The private key, as PEM. */
  readonly key: string | Uint8Array;
  /** The certificate and its chain, as PEM. */
  readonly cert: string | Uint8Array;
}

export interface ServerOptions {
  /** The port; 0 picks a free port. Defaults to 3010. */
  readonly port?: number | undefined;
  /** The address to listen on. Defaults to `"127.0.0.1"`, which only this machine can reach. */
  readonly host?: string | undefined;
  /** The path of a Unix socket to listen on, in place of host and port. */
  readonly socket?: string | undefined;
  /**
   * The address that browsers use, if a proxy gives the server another address:
   * `"https://ops.example.com/sluice/"`. Only pages of this address may change things. Defaults to
   * the `Host` of each request.
   */
  readonly publicUrl?: string | undefined;
  /**
   * Whether `X-Forwarded-For`, `-Host` and `-Proto` are trusted: from every proxy (`true`), or only
   * from these addresses and networks (`"10.0.0.0/8"`, or a list). With `true`, let clients reach
   * the server only through a proxy, because clients can send these headers too. Defaults to false.
   */
  readonly trustProxy?: boolean | string | readonly string[] | undefined;
  /**
   * How long an idle connection stays open, in ms. Set it above the idle timeout of a load balancer
   * in front of the server. Otherwise the load balancer sends requests on closed connections. For
   * Google's load balancer, which keeps idle connections for 600 s, use 620000. Defaults to 72000.
   */
  readonly keepAliveTimeoutMs?: number | undefined;
  /** Serves over TLS. Defaults to plain HTTP. */
  readonly tls?: TlsOptions | undefined;
  /** The accepted tokens. Required unless `insecureLocal` is set. */
  readonly tokens?: readonly TokenOptions[] | undefined;
  /**
   * Allows all requests without a token. Possible only on loopback or a Unix socket. Defaults to
   * false.
   */
  readonly insecureLocal?: boolean | undefined;
  /**
   * What AI agents may do over `/mcp`, within the role of their token: `"view"` only lets them read.
   * Defaults to `"act"`.
   */
  readonly mcpAllow?: "view" | "act" | undefined;
  /**
   * A pino logger, or a compatible one; `false` disables logging. Defaults to JSON lines on stdout.
   */
  readonly logger?: ServerLogger | false | undefined;
  /**
   * The maximum size of a request body in bytes. Defaults to 1048576 (1 MiB). Forwarded requests
   * have no limit.
   */
  readonly bodyLimit?: number | undefined;
  /**
   * Reverse proxies, by name. A reverse proxy holds each request until its slot. `{ openai: { to:
   * "https://api.openai.com" } }` serves the paths below `/openai/`. Defaults to none.
   */
  readonly forward?: Readonly<Record<string, ForwardOptions>> | undefined;
  /**
   * Answers Envoy's `ShouldRateLimit` over gRPC on a separate port, with the same host, tokens and
   * TLS. Requires the package `@grpc/grpc-js`. Defaults to no gRPC.
   */
  readonly grpc?: GrpcOptions | undefined;
}

/** The options of a server, with all defaults filled in. */
export interface ReadServerOptions extends Omit<ServerOptions, "publicUrl"> {
  /** The public URL. Its path ends with a slash. */
  readonly publicUrl: URL | undefined;
  readonly port: number;
  readonly host: string;
  readonly tokens: readonly TokenOptions[];
  readonly insecureLocal: boolean;
  readonly bodyLimit: number;
  readonly forwards: readonly ReadForward[];
  readonly grpc?: ReadGrpcOptions | undefined;
}

const NAMES = z.array(NAME, { error: 'give a list of names, or ["*"]' });
const A_TOKEN = { error: "give at least 8 visible characters of ASCII, without spaces" };
const A_TOKEN_LIST = { error: 'give a list such as [{ token, role: "act" }]' };
const A_ROLE = { error: 'give "view", "act", "call" or "work"' };
const PEM = { error: "give the text of a PEM file, or a Buffer with it" };
const PEM_TEXT = z.union([z.string(PEM), z.instanceof(Uint8Array, PEM)], PEM);
const A_BOOLEAN = { error: "give true or false" };
const A_LOGGER = { error: "give a pino logger, or false" };
const AN_ADDRESS = { error: 'give an address or a host name, such as "127.0.0.1"' };
const A_PATH = { error: 'give the path of a socket, such as "/run/sluice.sock"' };

const A_PUBLIC_URL = {
  error:
    'give a URL with http or https and without a user, a query or a #, such as "https://ops.example.com/sluice/"',
};
const PROXIES = {
  error:
    'give true, or the addresses and networks of proxies, such as "127.0.0.1" or ["10.0.0.0/8"]',
};
const PROXY = z.string(PROXIES).refine(areProxies, PROXIES);

/** Fields of a token whose values are not secret. */
const PLAIN_FIELDS: ReadonlySet<string> = new Set(["role", "name", "buckets", "queues"]);

const TOKEN = z.strictObject(
  {
    // Trim the token, because a token from a file ends with a line break.
    token: z
      .string(A_TOKEN)
      .trim()
      .regex(/^[\x21-\x7e]{8,}$/, A_TOKEN),
    role: z.enum(["view", "act", "call", "work"], A_ROLE),
    name: NAME.optional(),
    buckets: NAMES.optional(),
    queues: NAMES.optional(),
  },
  { error: 'give an object such as { token, role: "act" }' },
);

const SERVER_OPTIONS = z.strictObject({
  port: wholeNumber(0, 65_535, "as a port").optional(),
  host: z
    .string(AN_ADDRESS)
    .regex(/^[\w.:-]+$/, AN_ADDRESS)
    .optional(),
  socket: z.string(A_PATH).min(1, A_PATH).optional(),
  publicUrl: z.string(A_PUBLIC_URL).refine(isPublicUrl, A_PUBLIC_URL).optional(),
  trustProxy: z.union([z.boolean(PROXIES), PROXY, z.array(PROXY, PROXIES)], PROXIES).optional(),
  keepAliveTimeoutMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
  tls: z.strictObject({ key: PEM_TEXT, cert: PEM_TEXT }).optional(),
  tokens: z.array(TOKEN, A_TOKEN_LIST).optional(),
  insecureLocal: z.boolean(A_BOOLEAN).optional(),
  mcpAllow: z.enum(["view", "act"], { error: 'give "view" or "act"' }).optional(),
  logger: z.union([z.literal(false), z.custom(isLogger, A_LOGGER)], A_LOGGER).optional(),
  bodyLimit: wholeNumber(1_024, 1_073_741_824, "bytes").optional(),
  forward: z
    .record(z.string(), z.custom<ForwardOptions>(), {
      error: 'give them by name, such as { openai: { to: "https://api.openai.com" } }',
    })
    .optional(),
  grpc: GRPC.optional(),
});

function isPublicUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, username, password, search, hash } = new URL(text);
  return /^https?:$/.test(protocol) && `${username}${password}${search}${hash}` === "";
}

function asFolder(text: string): URL {
  const url = new URL(text);
  if (!url.pathname.endsWith("/")) url.pathname += "/";
  return url;
}

/** Checks a comma-separated list of addresses and networks, in the form that Fastify accepts. */
function areProxies(text: string): boolean {
  return text.split(",").every((part) => {
    const [address = "", bits, ...rest] = part.trim().split("/");
    if (["loopback", "linklocal", "uniquelocal"].includes(address)) return bits === undefined;
    const most = isIP(address) === 6 ? 128 : 32;
    const isNetwork = bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= most);
    return isIP(address) !== 0 && isNetwork && rest.length === 0;
  });
}

/** True for options that may contain a token or a key. */
function isSecret([name, , ...within]: readonly PropertyKey[]): boolean {
  if (name === undefined || name === "tls") return true;
  const [field] = within;
  return name === "tokens" && !(field !== undefined && PLAIN_FIELDS.has(String(field)));
}

function isLogger(value: unknown): boolean {
  return typeof (value as { child?: unknown } | null | undefined)?.child === "function";
}

/**
 * @throws {@link InvalidOptionError} when an option can never work, or the options would open the
 * server to everybody without a token.
 */
export function readServerOptions(where: string, given: unknown): ReadServerOptions {
  const read = readOptions(where, SERVER_OPTIONS, given, isSecret) as ServerOptions &
    Pick<ReadServerOptions, "grpc">;
  const { port = 3_010, host = "127.0.0.1", tokens = [], insecureLocal = false } = read;
  const { bodyLimit = 1_048_576 } = read;
  assertGuarded(where, { ...read, host, tokens, insecureLocal });
  assertDifferent(where, tokens);
  const forwards = readForwards(where, read.forward ?? {});
  const publicUrl = read.publicUrl === undefined ? undefined : asFolder(read.publicUrl);
  return { ...read, publicUrl, port, host, tokens, insecureLocal, bodyLimit, forwards };
}

function assertGuarded(
  where: string,
  given: Pick<ReadServerOptions, "host" | "tokens" | "insecureLocal" | "socket" | "grpc">,
): void {
  const { host, socket, tokens, insecureLocal, grpc } = given;
  if (!insecureLocal && tokens.length === 0) {
    const remedy =
      'give tokens, such as [{ token, role: "act" }], or insecureLocal: true to serve this machine alone without one';
    throw new InvalidOptionError({ where, option: "tokens", value: given.tokens, remedy });
  }
  if (!insecureLocal) return;
  if (tokens.length > 0) {
    const remedy = "leave it out, since there are tokens; or leave out the tokens";
    throw new InvalidOptionError({ where, option: "insecureLocal", value: true, remedy });
  }
  if (isLoopback(host) || (socket !== undefined && grpc === undefined)) return;
  const remedy = `it is for loopback only, and the host is ${JSON.stringify(host)}: give tokens, or the host 127.0.0.1`;
  throw new InvalidOptionError({ where, option: "insecureLocal", value: true, remedy });
}

function assertDifferent(where: string, tokens: readonly TokenOptions[]): void {
  const twice = tokens.findIndex(({ token }, at) =>
    tokens.slice(0, at).some((other) => other.token === token),
  );
  if (twice === -1) return;
  const remedy = "another entry has the same token; give each its own";
  const option = `tokens.${twice}.token`;
  throw new InvalidOptionError({ where, option, value: "***", remedy });
}

/** True if only this machine can reach the address. */
export function isLoopback(host: string): boolean {
  if (host === "localhost" || host === "::1") return true;
  return isIP(host) === 4 && host.startsWith("127.");
}
