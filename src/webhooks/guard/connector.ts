/**
 * Connects only to checked addresses. A name is resolved once, and the connection uses exactly the
 * address that was checked.
 */
import { lookup as lookUpName, type LookupAddress } from "node:dns";
import { isIP, type LookupFunction, type Socket } from "node:net";
import { buildConnector } from "undici";
import { reasonOf } from "../../core/describe.ts";
import type { JudgeAddress } from "./addresses.ts";

/** Resolves a host name to its IPv4 and IPv6 addresses. */
export type Resolve = (hostname: string) => Promise<readonly string[]>;

/** Signals that none of the host's addresses may be used. */
class BlockedAddressError extends Error {
  override readonly name = "BlockedAddressError";
  readonly code = "EBLOCKED";

  constructor(hostname: string, address: string) {
    super(`${hostname} is at ${address}, where webhooks may not go`);
  }
}

export interface ConnectorOptions {
  readonly judge: JudgeAddress;
  /** Resolves host names. Defaults to the system's resolver, including its hosts file. */
  readonly resolve?: Resolve | undefined;
  /** The origin of the receiver of `sluice dev`, which is allowed whatever `judge` returns. */
  readonly devReceiver?: string | undefined;
  /** The time limit for the DNS look-up, the connection and TLS together. */
  readonly connectMs: number;
  readonly tls?: ConnectorTls | undefined;
}

export interface ConnectorTls {
  readonly ca?: string | readonly string[] | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/** The client certificate for mutual TLS, with both parts as PEM. */
export interface ClientCertificate {
  readonly cert: string;
  readonly key: string;
}

/** TLS settings that verify certificates even if `$NODE_TLS_REJECT_UNAUTHORIZED` is set. */
export const SECURE = { minVersion: "TLSv1.2", rejectUnauthorized: true } as const;

/** @internal */
export function createConnector(options: ConnectorOptions): buildConnector.connector {
  const { judge, devReceiver, connectMs: timeout, tls = {} } = options;
  const given = Object.fromEntries(Object.entries(tls).filter(([, value]) => value !== undefined));
  const lookup = guardedLookup(options);
  const connect = buildConnector({ ...given, ...SECURE, lookup, timeout });
  return (target, callback) => {
    const hostname = withoutBrackets(target.hostname);
    if (
      devReceiver !== undefined &&
      `${target.protocol}//${hostname}:${target.port}` === devReceiver
    ) {
      connect(target, callback);
      return;
    }
    // Check the address here, because Node calls `lookup` only for names.
    if (isIP(hostname) !== 0 && !judge(hostname)) {
      callback(new BlockedAddressError(hostname, hostname), null);
      return;
    }
    connect(target, (...[error, socket]) => {
      if (error !== null) {
        callback(error, null);
        return;
      }
      const refusal = refusalOf(socket, hostname, judge);
      if (refusal === undefined) {
        callback(null, socket);
        return;
      }
      socket.destroy();
      callback(refusal, null);
    });
  };
}

/** Checks the address of the open socket again, in case a connection bypassed the DNS look-up. */
function refusalOf(
  { remoteAddress }: Socket,
  hostname: string,
  judge: JudgeAddress,
): BlockedAddressError | undefined {
  const address = remoteAddress ?? "no address";
  return judge(address.replace(/%.*$/, ""))
    ? undefined
    : new BlockedAddressError(hostname, address);
}

/**
 * Returns a `lookup` function that resolves a name to its allowed addresses. The look-up fails if
 * there are none.
 */
function guardedLookup({ judge, resolve = resolveBySystem }: ConnectorOptions): LookupFunction {
  async function openOf(hostname: string, of: number): Promise<LookupAddress[]> {
    // Only the resolver needs a trailing dot, and some resolvers do not recognize "localhost." with
    // the dot.
    const addresses = await addressesOf(hostname.replace(/\.$/, ""), resolve);
    const found = addresses
      .map((address) => ({ address, family: isIP(address) }))
      .filter(({ family }) => family !== 0 && (of === 0 || family === of));
    // Private addresses are never used, even next to public ones.
    const open = found.filter(({ address }) => judge(address));
    if (open.length === 0) throw nothingOpen(hostname, found);
    return open;
  }
  return (hostname, { all, family }, callback) => {
    const of = family === "IPv4" ? 4 : family === "IPv6" ? 6 : (family ?? 0);
    void answerWith(openOf(hostname, of), all === true, callback);
  };
}

/**
 * Resolver errors which mean that a name has no address. All other errors are faults of the
 * resolver.
 */
const NOT_THERE: ReadonlySet<string | undefined> = new Set(["ENOTFOUND", "ENODATA", "EBADNAME"]);

async function addressesOf(hostname: string, resolve: Resolve): Promise<readonly string[]> {
  try {
    const addresses = await resolve(hostname);
    if (Array.isArray(addresses)) return addresses;
    throw new TypeError("resolve() returned no list of addresses");
  } catch (cause) {
    if (NOT_THERE.has((cause as NodeJS.ErrnoException).code)) throw cause;
    const text = `${hostname} could not be looked up: ${reasonOf(cause)}`;
    throw Object.assign(new Error(text, { cause }), { code: "ERESOLVE" });
  }
}

async function answerWith(
  finding: Promise<LookupAddress[]>,
  all: boolean,
  callback: Parameters<LookupFunction>[2],
): Promise<void> {
  let open: LookupAddress[];
  try {
    open = await finding;
  } catch (error) {
    callback(error as NodeJS.ErrnoException, "");
    return;
  }
  if (all) callback(null, open);
  else callback(null, open[0]!.address, open[0]!.family);
}

function nothingOpen(hostname: string, found: readonly LookupAddress[]): Error {
  const [first] = found;
  if (first !== undefined) return new BlockedAddressError(hostname, first.address);
  return Object.assign(new Error(`${hostname} has no address`), { code: "ENOTFOUND" });
}

function resolveBySystem(hostname: string): Promise<readonly string[]> {
  return new Promise((resolve, reject) => {
    lookUpName(hostname, { all: true, verbatim: true }, (error, found) => {
      if (error === null) resolve(found.map(({ address }) => address));
      else reject(error);
    });
  });
}

function withoutBrackets(hostname: string): string {
  return hostname.startsWith("[") ? hostname.slice(1, -1) : hostname;
}
