import type {
  Metadata,
  sendUnaryData,
  Server,
  ServerInterceptor,
  ServerUnaryCall,
  ServiceDefinition,
} from "@grpc/grpc-js";
import { InvalidOptionError } from "../../../core/errors.ts";
import type { Gate } from "../../access/access.ts";
import { problemOf } from "../../problem.ts";
import { CODE, readHealthCheck, readRequest, writeHealth, writeResponse } from "./messages.ts";
import type { ReadGrpcOptions } from "./options.ts";
import { createRateLimits, type RateLimitParts, type RateLimits } from "./rate-limits.ts";

type Grpc = typeof import("@grpc/grpc-js");

export interface GrpcServer {
  /** Starts listening. Resolves with the address: `"127.0.0.1:8081"`. */
  listen(): Promise<string>;
  /** Stops accepting calls. Resolves when the calls in progress have been answered. */
  close(): Promise<void>;
  /** Ends all calls immediately. */
  closeNow(): void;
}

export interface GrpcServerOptions extends RateLimitParts {
  readonly where: string;
  readonly gate: Gate;
  readonly host: string;
  readonly bodyLimit: number;
  /** The result of health checks: whether requests can be answered. */
  readonly isReady: () => Promise<boolean>;
  readonly tls: { readonly key: Buffer; readonly cert: Buffer } | undefined;
}

const SERVICE = "envoy.service.ratelimit.v3.RateLimitService";
const HEALTH = "grpc.health.v1.Health";

/** @throws {@link InvalidOptionError} when `@grpc/grpc-js` is not installed. */
export async function createGrpcServer(parts: GrpcServerOptions): Promise<GrpcServer> {
  const { where, options, host, bodyLimit, tls } = parts;
  const grpc = await load(where, options);
  const server = new grpc.Server({
    "grpc.max_receive_message_length": bodyLimit,
    interceptors: [endUnsent(grpc)],
  });
  addService(server, grpc, parts);

  async function listen(): Promise<string> {
    const credentials =
      tls === undefined
        ? grpc.ServerCredentials.createInsecure()
        : grpc.ServerCredentials.createSsl(null, [{ private_key: tls.key, cert_chain: tls.cert }]);
    const name = host.includes(":") ? `[${host}]` : host;
    const port = await new Promise<number>((resolve, reject) => {
      server.bindAsync(`${name}:${options.port}`, credentials, (error, bound) =>
        error === null ? resolve(bound) : reject(error),
      );
    });
    return `${name}:${port}`;
  }

  return {
    listen,
    close: () => new Promise((resolve) => server.tryShutdown(() => resolve())),
    closeNow: () => server.forceShutdown(),
  };
}

/**
 * The time limit for the message of a call. The token is checked only after the message has
 * arrived.
 */
const MESSAGE_MS = 10_000;

/** Ends calls whose message does not arrive, because each of them would occupy its connection. */
function endUnsent(grpc: Grpc): ServerInterceptor {
  const late = {
    code: grpc.status.DEADLINE_EXCEEDED,
    details: "The message did not come in time.",
  };
  return (_method, call) =>
    new grpc.ServerInterceptingCall(call, {
      start(next) {
        const deadline = setTimeout(() => call.sendStatus(late), MESSAGE_MS);
        next({
          onReceiveMessage(message, pass) {
            clearTimeout(deadline);
            pass(message);
          },
          onCancel: () => clearTimeout(deadline),
        });
      },
    });
}

async function load(where: string, { port }: ReadGrpcOptions): Promise<Grpc> {
  try {
    return await import("@grpc/grpc-js");
  } catch (cause) {
    const remedy = "install the package that it needs: npm install @grpc/grpc-js";
    throw new InvalidOptionError({ where, option: "grpc", value: { port }, remedy, cause });
  }
}

function addService(server: Server, grpc: Grpc, parts: GrpcServerOptions): void {
  const limits = createRateLimits(parts);
  async function shouldRateLimit(
    call: ServerUnaryCall<Buffer, Uint8Array>,
    done: sendUnaryData<Uint8Array>,
  ): Promise<void> {
    const answered = await answer(call, limits, parts).catch((error: unknown) => ({
      error: errorOf(error, grpc, parts),
    }));
    if ("error" in answered) done(answered.error);
    else done(null, answered);
  }
  server.addService(serviceOf(SERVICE, "ShouldRateLimit"), { ShouldRateLimit: shouldRateLimit });

  /** Answers a health check. It needs no token, like `/readyz`. */
  async function check(
    { request }: ServerUnaryCall<Buffer, Uint8Array>,
    done: sendUnaryData<Uint8Array>,
  ): Promise<void> {
    try {
      const asked = readHealthCheck(request);
      if (!["", SERVICE, HEALTH].includes(asked)) {
        return done({ code: grpc.status.NOT_FOUND, details: "This server has no such service." });
      }
      done(null, writeHealth(await parts.isReady()));
    } catch (error) {
      done(errorOf(error, grpc, parts));
    }
  }
  server.addService(serviceOf(HEALTH, "Check"), { Check: check });
}

/** Defines a service with a single method whose messages are bytes. */
export function serviceOf(service: string, method: string): ServiceDefinition {
  const asIs = (bytes: Uint8Array): Buffer => Buffer.from(bytes);
  return {
    [method]: {
      path: `/${service}/${method}`,
      requestStream: false,
      responseStream: false,
      requestSerialize: asIs,
      requestDeserialize: asIs,
      responseSerialize: asIs,
      responseDeserialize: asIs,
    },
  };
}

async function answer(
  { metadata, request }: ServerUnaryCall<Buffer, Uint8Array>,
  limits: RateLimits,
  { gate, log }: GrpcServerOptions,
): Promise<Uint8Array> {
  const sinceMs = performance.now();
  const access = gate.assertMay(tokensOf(metadata), "draw");
  const asked = readRequest(request);
  const response = await limits.decide(asked, access);
  const ms = Math.round(performance.now() - sinceMs);
  const allowed = response.code === CODE.ok;
  log.info({ method: "ShouldRateLimit", domain: asked.domain, allowed, ms }, "request");
  return writeResponse(response);
}

function tokensOf(metadata: Metadata): Parameters<Gate["assertMay"]>[0] {
  const [authorization] = metadata.get("authorization");
  const [apart] = metadata.get("x-sluice-token");
  return {
    authorization: authorization?.toString(),
    "x-sluice-token": apart?.toString(),
  };
}

/**
 * Maps an error to a gRPC status. If a request fails, Envoy lets the call pass unless
 * `failure_mode_deny` is set.
 */
function errorOf(
  error: unknown,
  { status }: Grpc,
  { log }: GrpcServerOptions,
): { readonly code: number; readonly details: string } {
  if (error instanceof RangeError) {
    return {
      code: status.INVALID_ARGUMENT,
      details: "The request is not a valid message of this gRPC method.",
    };
  }
  const problem = problemOf(error);
  if (problem.code === "ERR_INTERNAL")
    log.error({ err: error }, "A gRPC request failed with an internal error.");
  else log.warn({ code: problem.code, reason: problem.detail }, "Rejected a gRPC request.");
  const codes: Readonly<Record<number, number>> = {
    400: status.INVALID_ARGUMENT,
    401: status.UNAUTHENTICATED,
    403: status.PERMISSION_DENIED,
    409: status.FAILED_PRECONDITION,
    503: status.UNAVAILABLE,
  };
  return { code: codes[problem.status] ?? status.INTERNAL, details: problem.detail };
}
