/** Checks from which pages a browser may send requests to this server. */
import type { FastifyRequest } from "fastify";
import { isLoopback } from "../options.ts";
import { HttpProblem } from "../problem.ts";

const SAFE: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS"]);

/**
 * Rejects requests that a page of another site makes a browser send. Only browsers set the headers
 * that this check reads, and pages cannot change them.
 *
 * Over HTTPS and on localhost, browsers send `Sec-Fetch-Site`. This header compares the addresses
 * that the browser sees, so a proxy cannot falsify it. Elsewhere, `Origin` must name this server:
 * either its `Host` or its `publicUrl`.
 *
 * @throws {@link HttpProblem} when a request that changes something, or draws, comes from another
 * origin.
 */
export function assertSameOrigin(
  request: FastifyRequest,
  needs: string,
  publicUrl: URL | undefined,
): void {
  const { method, headers } = request;
  // Requests with a safe method pass without a check, except for forwarded requests. A forwarded
  // request takes a slot with any method, and may get the credentials of the upstream.
  if (SAFE.has(method) && needs !== "draw") return;
  const site = headers["sec-fetch-site"];
  if (site === "same-origin" || site === "none") return;
  if (site === undefined && isOwn(headers.origin, [request.host, publicUrl?.host])) return;
  throw new HttpProblem(
    "ERR_CROSS_SITE",
    "A page of another site asked for this; only pages of this server may. If this is a page of this server behind a proxy, set publicUrl (--public-url) to the address that browsers show.",
  );
}

function isOwn(origin: string | undefined, hosts: readonly (string | undefined)[]): boolean {
  if (origin === undefined) return true;
  if (!URL.canParse(origin)) return false;
  const { protocol, host } = new URL(origin);
  return hosts.some((own) => {
    // Compare parsed hosts, because an origin omits the default port.
    const url = `${protocol}//${own}`;
    return own !== undefined && URL.canParse(url) && new URL(url).host === host;
  });
}

/** Caches the last accepted host, because nearly all requests have the same host. */
let lastGood: string | undefined;

/**
 * @throws {@link HttpProblem} when the request's host is neither a name of this machine nor the
 * host of `publicUrl`.
 */
export function assertLoopbackName({ headers }: FastifyRequest, publicUrl: URL | undefined): void {
  const { host = "" } = headers;
  if (host === lastGood) return;
  const url = `http://${host}`;
  const name = URL.canParse(url) ? new URL(url).hostname.replaceAll(/[[\]]/g, "") : "";
  if (isLoopback(name)) {
    lastGood = host;
    return;
  }
  if (name !== "" && name === publicUrl?.hostname) return;
  throw new HttpProblem(
    "ERR_CROSS_SITE",
    "This server is for this machine alone; use the host 127.0.0.1 or localhost.",
  );
}
