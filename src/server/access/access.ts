/**
 * Authorization. Each route states its required permission in its `config`. One hook checks the
 * permission before the body is read. A request contains its token in `Authorization: Bearer …` or
 * `x-sluice-token`. The dashboard sends a cookie instead, for which it has exchanged a token.
 */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { InvalidOptionError } from "../../core/errors.ts";
import { assertSameOrigin, assertLoopbackName } from "./origin.ts";
import type { ReadServerOptions, TokenOptions } from "../options.ts";
import { HttpProblem } from "../problem.ts";

/** The permission that a route requires. `"nothing"` opens the route to everybody. */
type Needs = "view" | "act" | "draw" | "enqueue" | "work" | "nothing";

/** The requirements that a route states in its `config`. */
interface RouteNeeds {
  readonly needs: Needs;
  /**
   * The name of the path parameter that contains a bucket's name. The bucket must be in the scope
   * of the token.
   */
  readonly bucket?: string;
  /**
   * The name of the path parameter that contains a queue's name. The queue must be in the scope of
   * the token.
   */
  readonly queue?: string;
}

declare module "fastify" {
  interface FastifyContextConfig {
    /** @internal */
    needs?: RouteNeeds["needs"];
    /** @internal */
    bucket?: string;
    /** @internal */
    queue?: string;
  }
}

/** The permissions of the client that sent a request. */
export interface Access {
  readonly role: TokenOptions["role"];
  /** The owner of the token. Undefined if the token has no name. */
  readonly name: string | undefined;
  readonly mayUse: (needs: Needs) => boolean;
  readonly mayBucket: (name: string) => boolean;
  readonly mayQueue: (name: string) => boolean;
}

const MAY: Readonly<Record<TokenOptions["role"], readonly Needs[]>> = {
  view: ["nothing", "view"],
  call: ["nothing", "draw", "enqueue"],
  work: ["nothing", "draw", "enqueue", "work"],
  act: ["nothing", "view", "act", "draw", "enqueue", "work"],
};

function accessOfToken({
  role,
  name,
  buckets = ["*"],
  queues = ["*"],
}: Omit<TokenOptions, "token">): Access {
  const holds = (names: readonly string[], asked: string): boolean =>
    names.includes("*") || names.includes(asked);
  return {
    role,
    name,
    mayUse: (needs) => MAY[role].includes(needs),
    mayBucket: (asked) => holds(buckets, asked),
    mayQueue: (asked) => holds(queues, asked),
  };
}

/**
 * The property of a request that stores its access. A map of all requests in progress would take
 * longer than the rest of the hook.
 */
const ACCESS = Symbol("access");

type Judged = FastifyRequest & { [ACCESS]?: Access | undefined };

/** Returns the permissions of a request's client, once the hook has accepted the request. */
export function accessOf(request: FastifyRequest): Access {
  const found = (request as Judged)[ACCESS];
  if (found === undefined)
    throw new HttpProblem("ERR_UNAUTHENTICATED", "The request has no token.");
  return found;
}

/** True if the route requires a token, and the client has sent a valid token. */
export function isAuthenticated(request: FastifyRequest): boolean {
  const { needs = "act" } = request.routeOptions.config;
  return needs !== "nothing" && (request as Judged)[ACCESS] !== undefined;
}

/** @throws {@link HttpProblem} when the bucket is not in the scope of the token. */
export function assertBucket(request: FastifyRequest, name: string): void {
  assertMayBucket(accessOf(request), name);
}

/** @throws {@link HttpProblem} when the bucket is not in the scope of the token. */
export function assertMayBucket({ mayBucket }: Access, name: string): void {
  if (mayBucket(name)) return;
  throw new HttpProblem("ERR_FORBIDDEN", `The token is not for bucket ${JSON.stringify(name)}.`);
}

/** @throws {@link HttpProblem} when the queue is not in the scope of the token. */
export function assertQueue(request: FastifyRequest, name: string): void {
  if (accessOf(request).mayQueue(name)) return;
  throw new HttpProblem("ERR_FORBIDDEN", `The token is not for queue ${JSON.stringify(name)}.`);
}

/**
 * The cookie of the dashboard. It contains its expiry time, signed with the token, and not the
 * token itself.
 */
const COOKIE = "sluice_session";
const SESSION_MS = 12 * 3_600_000;

/** The headers that can contain a token, if the client sends no cookie. */
interface TokenHeaders {
  readonly authorization?: string | undefined;
  readonly "x-sluice-token"?: string | string[] | undefined;
}

interface OfPath {
  /** The path at which browsers see the server, because a proxy may serve it below another path. */
  readonly path: string | undefined;
}

interface SessionCookie extends OfPath {
  readonly value: string;
  readonly maxAgeS: number;
}

export interface Gate {
  /**
   * Checks the client of a request that has no route.
   *
   * @throws {@link HttpProblem} when the token in its headers is missing, or lacks the permission.
   */
  assertMay(headers: TokenHeaders, needs: Needs): Access;
  /** Sets the cookie. A browser with the cookie has the permissions of the token. */
  signIn(reply: FastifyReply, by: { readonly token: string } & OfPath): Access;
  signOut(reply: FastifyReply, from: OfPath): void;
  /** True if the client has signed in, and so can sign out. */
  isSignedIn(request: FastifyRequest): boolean;
}

/** Checks every request of the server. */
export function installAccess(
  app: FastifyInstance,
  { tokens, insecureLocal, tls, socket, publicUrl }: ReadServerOptions,
): Gate {
  const kept = tokens.map((each) => ({ ...each, access: accessOfToken(each) }));
  const everything = insecureLocal ? accessOfToken({ role: "act" }) : undefined;
  const isNamed = insecureLocal && socket === undefined;
  const isOverTls = tls !== undefined || publicUrl?.protocol === "https:";
  const key = randomBytes(32);
  const digest = (text: string): Buffer => createHmac("sha256", key).update(text).digest();

  /** Finds a token. Compares all tokens, each in constant time, even after a match. */
  function byToken(given: string): (typeof kept)[number] | undefined {
    const asked = digest(given);
    const matches = kept.filter(({ token }) => timingSafeEqual(digest(token), asked));
    return matches[0];
  }

  function bySession(cookie: string): (typeof kept)[number] | undefined {
    const [until = "", signature = ""] = cookie.split(".");
    if (!/^\d{13}$/.test(until) || Number(until) < Date.now()) return undefined;
    const asked = digest(signature);
    const matches = kept.filter(({ token }) =>
      timingSafeEqual(digest(signed(token, until)), asked),
    );
    return matches[0];
  }

  /**
   * Returns the access of the request. `isAmbient` is true if a browser would send the same
   * credentials with requests from pages of other sites.
   */
  function judge({ headers }: FastifyRequest): { access: Access | undefined; isAmbient: boolean } {
    if (everything !== undefined) return { access: everything, isAmbient: true };
    const given = tokenIn(headers);
    if (given !== undefined) return { access: byToken(given)?.access, isAmbient: false };
    const cookie = cookieOf(headers.cookie ?? "");
    return {
      access: cookie === undefined ? undefined : bySession(cookie)?.access,
      isAmbient: true,
    };
  }

  /** @throws {@link HttpProblem} when the client lacks the required permission. */
  function assertLetIn(request: FastifyRequest): void {
    // Check the host name. If another site points its name at this machine (DNS rebinding),
    // requests from its pages contain that name.
    if (isNamed) assertLoopbackName(request, publicUrl);
    if (request.is404) return;
    const { needs = "act", bucket, queue } = request.routeOptions.config;
    const { access, isAmbient } = judge(request);
    (request as Judged)[ACCESS] = access;
    if (isAmbient) assertSameOrigin(request, needs, publicUrl);
    if (needs === "nothing") return;
    assertMay(access, needs);
    const params = request.params as Readonly<Record<string, string>>;
    if (bucket !== undefined) assertBucket(request, params[bucket]!);
    if (queue !== undefined) assertQueue(request, params[queue]!);
  }

  app.decorateRequest(ACCESS, undefined);
  // This hook is not async, like all hooks that run for each request, because each promise costs a
  // turn of the event loop.
  app.addHook("onRequest", (request, _reply, done) => {
    try {
      assertLetIn(request);
    } catch (error) {
      return done(error as Error);
    }
    done();
  });
  refuseRoutesWithoutNeeds(app);

  function setCookie(reply: FastifyReply, { value, path, maxAgeS }: SessionCookie): void {
    const secure = isOverTls || reply.request.protocol === "https" ? "; Secure" : "";
    const rest = `Path=${path ?? publicUrl?.pathname ?? "/"}; Max-Age=${maxAgeS}; HttpOnly; SameSite=Strict${secure}`;
    void reply.header("set-cookie", `${COOKIE}=${value}; ${rest}`);
  }

  return {
    assertMay(headers, needs) {
      const given = tokenIn(headers);
      const access = everything ?? (given === undefined ? undefined : byToken(given)?.access);
      return assertMay(access, needs);
    },
    signIn(reply, { token: given, path }) {
      const found = byToken(given.trim());
      const access = found?.access ?? everything;
      if (access === undefined)
        throw new HttpProblem("ERR_UNAUTHENTICATED", "This server knows no such token.");
      if (found !== undefined) {
        const until = String(Date.now() + SESSION_MS);
        const value = `${until}.${signed(found.token, until)}`;
        setCookie(reply, { value, path, maxAgeS: SESSION_MS / 1_000 });
      }
      return access;
    },
    signOut: (reply, { path }) => setCookie(reply, { value: "", path, maxAgeS: 0 }),
    isSignedIn: ({ headers }) => everything === undefined && headers.authorization === undefined,
  };
}

/** Returns the token in the headers. An empty text is never a valid token. */
function tokenIn({ authorization, "x-sluice-token": apart }: TokenHeaders): string | undefined {
  // Prefer this header: in forwarded requests, `Authorization` is meant for the upstream.
  if (apart !== undefined) return String(apart);
  if (authorization === undefined) return undefined;
  return /^bearer ([\x21-\x7e]+)$/i.exec(authorization)?.[1] ?? "";
}

function assertMay(access: Access | undefined, needs: Needs): Access {
  if (access === undefined) {
    throw new HttpProblem(
      "ERR_UNAUTHENTICATED",
      "Send a token of this server as Authorization: Bearer …, or as x-sluice-token.",
    );
  }
  if (access.mayUse(needs)) return access;
  throw new HttpProblem(
    "ERR_FORBIDDEN",
    `This needs a token that may ${needs}; the role of this one is "${access.role}".`,
  );
}

function signed(token: string, until: string): string {
  return createHmac("sha256", token).update(`sluice session until ${until}`).digest("base64url");
}

function cookieOf(header: string): string | undefined {
  const pairs = header.split(";").map((pair) => pair.trim().split("="));
  return pairs.find(([name]) => name === COOKIE)?.[1];
}

/**
 * Rejects routes that state no permission. Without this check, such a route would be open or closed
 * by accident.
 */
function refuseRoutesWithoutNeeds(app: FastifyInstance): void {
  const routes: { readonly path: string; readonly needs: () => unknown }[] = [];
  app.addHook("onRoute", (route) => {
    const path = `${String(route.method)} ${route.url}`;
    routes.push({ path, needs: () => route.config?.needs });
  });
  app.addHook("onReady", async () => {
    const open = routes.find(({ needs }) => needs() === undefined);
    if (open === undefined) return;
    const remedy =
      'set the right that a token needs for this route, such as { config: { needs: "view" } }';
    const where = `the route ${open.path}`;
    throw new InvalidOptionError({ where, option: "config.needs", value: undefined, remedy });
  });
}
