/**
 * Reverse proxies that hold each request until its slot, and let buckets observe the responses of
 * upstreams.
 */
import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import type { Duplex, Readable } from "node:stream";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { Bucket, OwnedBucket } from "../../throttle/bucket.ts";
import { reasonOf } from "../../core/describe.ts";
import {
  BudgetSpentError,
  LineFullError,
  SluiceError,
  WaitTooLongError,
} from "../../core/errors.ts";
import { unknownMember } from "../../core/policy/pool.ts";
import { assertBucket } from "../access/access.ts";
import { endOfTurn } from "../decide/caller.ts";
import type { FoundBuckets } from "../decide/found-buckets.ts";
import { HttpProblem } from "../problem.ts";
import { pathBelow } from "./address.ts";
import { readBody, type Body } from "./upstream/body.ts";
import { deliver } from "./upstream/deliver.ts";
import type { Exchange } from "./upstream/exchange.ts";
import { createFetches } from "./upstream/fetches.ts";
import { requestHeaders } from "./upstream/headers.ts";
import type { ReadAddress, ReadForward, ReadUpstream } from "./options.ts";
import { createPendings } from "./upstream/pending.ts";
import { createPools } from "./upstream/pools.ts";
import { keyOf, readClientHeaders } from "./client-headers.ts";

export interface ForwardParts {
  readonly forwards: readonly ReadForward[];
  readonly found: Pick<FoundBuckets, "bucket">;
  /** True if a text contains a token of this server. */
  readonly holdsToken: (text: string) => boolean;
}

/** The statuses after which the next upstream is tried, if there is one. */
const REFUSALS: ReadonlySet<number> = new Set([429, 502, 503, 504, 529]);
const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] as const;

export function forwardRoutes(app: FastifyInstance, parts: ForwardParts): void {
  const { forwards, found, holdsToken } = parts;
  const pools = createPools(
    forwards.flatMap(({ upstreams }) =>
      upstreams.flatMap(({ origin, members }) => [
        origin,
        ...[...members.values()].map((member) => member.origin),
      ]),
    ),
  );
  const fetches = createFetches();
  const pendings = createPendings();
  const checked = new WeakSet<ReadUpstream>();

  async function forward(
    to: ReadForward,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<void> {
    const pending = pendings.of(reply.raw);
    const { raw } = request;
    if (asksForWebSocket(raw.headers)) {
      throw new HttpProblem("ERR_UPGRADE_REFUSED", "WebSockets are not forwarded.");
    }
    assertNoTokenIn(raw.url!);
    const clientHeaders = readClientHeaders(raw);
    const { key, path } = keyOf(to.key, raw, pathBelow(raw.url!, to.at));
    const body = await readBody(raw);
    // Destroy the rest of the body. Otherwise it would block the next request on the connection.
    if (isStream(body)) reply.raw.once("finish", () => body.destroy());
    await endOfTurn();
    for (const [index, upstream] of to.upstreams.entries()) {
      const isLast = index === to.upstreams.length - 1;
      const bucket = await bucketOf(upstream, request);
      assertPool(to.name, upstream, bucket as OwnedBucket);
      const exchange = exchangeOf({ upstream, bucket, raw, key, path, body, pending });
      const maxWaitMs = lesser(clientHeaders.maxWaitMs, upstream.maxWaitMs);
      pendings.wait(pending);
      try {
        const { priority } = clientHeaders;
        const { accounts } = upstream;
        const how = { priority, maxWaitMs, accounts, tries: isLast ? to.tries : 1 };
        const response = await fetches.send(bucket, exchange, how);
        if (!isLast && REFUSALS.has(response.status) && !isStream(body)) {
          await response.body?.cancel();
          continue;
        }
        pending.isWaiting = false;
        reply.hijack();
        deliver(reply.raw, exchange.answer!, response, pending.ending.signal);
        return;
      } catch (error) {
        // The server is closing, or the client has disconnected.
        if (pending.ending.signal.aborted) throw pending.ending.signal.reason;
        const mayFollow = !isLast && (!isStream(body) || !exchange.isSent);
        if (mayFollow && isWorthAnother(error, exchange.isSent)) continue;
        forbidRetry(reply, error, clientHeaders);
        throw failureOf(error, to.name, request);
      }
    }
    throw new Error("a forward has at least one upstream");
  }

  /** @throws {@link HttpProblem} when the URL for the upstream would contain a token of this server. */
  function assertNoTokenIn(url: string): void {
    if (!holdsToken(url)) return;
    throw new HttpProblem(
      "ERR_BAD_REQUEST",
      "The URL contains a token of this server, which is not forwarded. Send the token as x-sluice-token.",
    );
  }

  async function bucketOf({ bucket }: ReadUpstream, request: FastifyRequest): Promise<Bucket> {
    const name = typeof bucket === "string" ? bucket : bucket.name;
    assertBucket(request, name);
    return typeof bucket === "string" ? found.bucket(name) : bucket;
  }

  /**
   * Checks the addresses of members against a bucket that another process declares. A pool can get members later, so
   * unknown names are only logged.
   *
   * @throws {@link HttpProblem} when the bucket is no pool, because requests would go to the wrong address.
   */
  function assertPool(forward: string, upstream: ReadUpstream, bucket: OwnedBucket): void {
    const { members } = upstream;
    if (members.size === 0 || checked.has(upstream)) return;
    if (bucket.policy.pool === undefined) {
      throw new HttpProblem("ERR_NOT_SUPPORTED", noPool(forward, bucket.name));
    }
    checked.add(upstream);
    void bucket.members().then(
      (inForce) => {
        const names = inForce.map(({ name }) => name);
        for (const member of members.keys()) {
          if (names.includes(member)) continue;
          const remedy = unknownMember(member, names);
          app.log.warn(
            { forward, member, remedy },
            "This forward has the address of an unknown member.",
          );
        }
      },
      () => checked.delete(upstream),
    );
  }

  function exchangeOf(
    of: Pick<Exchange, "key" | "body" | "pending"> & {
      readonly path: string;
      readonly upstream: ReadUpstream;
      readonly bucket: Bucket;
      readonly raw: IncomingMessage;
    },
  ): Exchange {
    const { upstream, bucket, raw, key, path, body, pending } = of;
    const { timeoutMs, members } = upstream;
    const isRead = (bucket as OwnedBucket).calls?.settle !== undefined;
    const { "content-length": length } = raw.headers;
    const addressOf = ({ origin, base, headers: instead }: ReadAddress): Exchange["address"] => {
      const headers = requestHeaders(raw.rawHeaders, { holdsToken, instead, isRead });
      if (isStream(body) && length !== undefined) headers.push("content-length", length);
      return { connections: pools.of(origin), origin, path: base + path, headers };
    };
    return {
      method: raw.method ?? "GET",
      address: addressOf(upstream),
      addressOf: (member) => addressOf(members.get(member) ?? upstream),
      key,
      body,
      timeoutMs,
      pending,
      isRead,
      isSent: false,
      answer: undefined,
    };
  }

  for (const to of forwards) {
    for (const url of [to.at, `${to.at}/*`]) {
      app.route({
        method: [...METHODS],
        url,
        config: { needs: "draw" },
        // Forward in this hook. Fastify has not read the body yet, so the body is forwarded as it
        // arrives. Fastify stops once a response is sent.
        onRequest: (request, reply) => forward(to, request, reply),
        handler: () => {},
      });
    }
  }
  app.server.on("connect", refuseTunnel);
  app.addHook("preClose", async () => {
    fetches.close();
    pendings.close();
  });
  app.addHook("onClose", async () => pools.close());
}

function noPool(forward: string, bucket: string): string {
  return (
    `Forward ${JSON.stringify(forward)} has addresses of members, but bucket ${JSON.stringify(bucket)} is no pool; ` +
    "leave the members out, or declare the pool with sluice.pool()."
  );
}

/**
 * True if the client asks for a WebSocket, which cannot continue without the upgrade. A server may
 * ignore any other upgrade, such as the h2c of Java's HttpClient (RFC 9110 §7.8). `Upgrade` alone
 * is not an offer, because `Connection` must name it.
 */
function asksForWebSocket({ connection = "", upgrade = "" }: IncomingHttpHeaders): boolean {
  return WEBSOCKET.test(upgrade) && UPGRADE.test(connection);
}

const WEBSOCKET = /(?:^|,)\s*websocket\b/i;
const UPGRADE = /(?:^|,)\s*upgrade\s*(?:,|$)/i;

/** Rejects CONNECT. A tunnel could lead anywhere, and its content could not be checked. */
function refuseTunnel(_request: IncomingMessage, socket: Duplex): void {
  socket.on("error", () => socket.destroy());
  socket.end(
    "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n" +
      "Content-Type: text/plain\r\nContent-Length: 37\r\nConnection: close\r\n\r\nCONNECT is not offered by this server",
  );
}

function lesser(one: number | undefined, other: number | undefined): number | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return Math.min(one, other);
}

/** True if the body is a stream. A stream cannot be sent twice. */
function isStream(body: Body): body is Readable {
  return body !== undefined && !(body instanceof Uint8Array);
}

/** The errors of a draw after which another upstream may have a slot. */
const NO_SLOT = [WaitTooLongError, LineFullError, BudgetSpentError];

const TIMEOUT_CODES = new Set([
  "UND_ERR_HEADERS_TIMEOUT",
  "UND_ERR_BODY_TIMEOUT",
  "UND_ERR_CONNECT_TIMEOUT",
]);

/**
 * True if another upstream may succeed after this upstream had no free slot in time, or did not
 * respond.
 */
function isWorthAnother(error: unknown, isSent: boolean): boolean {
  if (!isSent) return NO_SLOT.some((each) => error instanceof each);
  return !(error instanceof SluiceError);
}

/** Returns the error for the client if no upstream responded. */
function failureOf(error: unknown, forward: string, request: FastifyRequest): unknown {
  if (error instanceof SluiceError || error instanceof HttpProblem) return error;
  const { code } = error as { readonly code?: string };
  request.log.warn({ forward, reason: reasonOf(error) }, "No upstream of this forward responded.");
  if (TIMEOUT_CODES.has(code ?? ""))
    return new HttpProblem(
      "ERR_UPSTREAM_TIMEOUT",
      "The upstream sent nothing for longer than the timeoutMs of this forward.",
    );
  return new HttpProblem(
    "ERR_UPSTREAM_UNREACHABLE",
    "The upstream is unreachable, or its connection closed before the response was complete.",
  );
}

/**
 * Sets a header with which the client's library does not retry automatically. A client that set a
 * maximum wait has an alternative, and a spent budget stays spent.
 */
function forbidRetry(
  reply: FastifyReply,
  error: unknown,
  { maxWaitMs }: { readonly maxWaitMs?: number | undefined },
): void {
  const isTooLong = error instanceof WaitTooLongError && maxWaitMs !== undefined;
  if (isTooLong || error instanceof BudgetSpentError) void reply.header("x-should-retry", "false");
}
