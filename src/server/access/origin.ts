/** From which pages a browser may ask. */
import type { FastifyRequest } from "fastify";
import { isLoopback } from "../options.ts";
import { HttpProblem } from "../problem.ts";

const SAFE: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS"]);

/**
 * Refuses what a page of another site lets a browser send. Only browsers set these headers, and pages cannot change them.
 *
 * @throws {@link HttpProblem} when a request that changes something, or draws, comes from another origin.
 */
export function assertSameOrigin({ method, headers }: FastifyRequest, needs: string): void {
  // A request that is forwarded takes a slot, and may get the credentials of the upstream, whatever its method.
  if (SAFE.has(method) && needs !== "draw") return;
  const site = headers["sec-fetch-site"];
  const isOtherSite = site !== undefined && site !== "same-origin" && site !== "none";
  if (!isOtherSite && isOwn(headers.origin, headers.host)) return;
  throw new HttpProblem(
    403,
    "A page of another site asked for this; only pages of this server may.",
  );
}

function isOwn(origin: string | undefined, host: string | undefined): boolean {
  if (origin === undefined) return true;
  return URL.canParse(origin) && new URL(origin).host === host?.toLowerCase();
}

/** The last host that was found good: nearly all requests name the same. */
let lastGood: string | undefined;

/** @throws {@link HttpProblem} when the request was sent to another name than one of this machine. */
export function assertLoopbackName({ headers }: FastifyRequest): void {
  const { host = "" } = headers;
  if (host === lastGood) return;
  const url = `http://${host}`;
  const name = URL.canParse(url) ? new URL(url).hostname.replaceAll(/[[\]]/g, "") : "";
  if (isLoopback(name)) {
    lastGood = host;
    return;
  }
  throw new HttpProblem(
    403,
    "This server is for this machine alone; ask it as 127.0.0.1 or localhost.",
  );
}
