import { join } from "node:path";
import {
  credentials,
  loadPackageDefinition,
  Metadata,
  type ChannelCredentials,
  type Client,
  type ServiceClientConstructor,
} from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { afterEach } from "vitest";

/** A request as the protocol has it. */
interface ShouldRateLimit {
  readonly domain?: string;
  readonly descriptors?: readonly Descriptor[];
  readonly hits_addend?: number;
}

interface Descriptor {
  readonly entries?: readonly { readonly key: string; readonly value: string }[];
  readonly limit?: { readonly requests_per_unit: number; readonly unit: string };
  readonly hits_addend?: { readonly value: number };
  readonly is_negative_hits?: boolean;
}

interface HeaderValue {
  readonly key: string;
  readonly value: string;
}

interface Answer {
  readonly overall_code: string;
  readonly statuses: readonly {
    readonly code: string;
    readonly current_limit: null | {
      readonly name: string;
      readonly requests_per_unit: number;
      readonly unit: string;
    };
    readonly limit_remaining: number;
    readonly duration_until_reset: null | { readonly seconds: number; readonly nanos: number };
  }[];
  readonly response_headers_to_add: readonly HeaderValue[];
  /** The same by their names. */
  readonly headers: Readonly<Record<string, string>>;
}

export interface EnvoyClient {
  /** The status of `grpc.health.v1.Health/Check`. */
  check(service?: string): Promise<string>;
  ask(request: ShouldRateLimit, metadata?: Readonly<Record<string, string>>): Promise<Answer>;
}

/** One descriptor: `descriptor(["path", "/a"], ["user", "ann"])`. */
export function descriptor(...entries: readonly (readonly [string, string])[]): Descriptor {
  return { entries: entries.map(([key, value]) => ({ key, value })) };
}

const PROTO = join(import.meta.dirname, "rls.proto");

const HEALTH_PROTO = join(import.meta.dirname, "health.proto");

interface Checking extends Client {
  Check(
    request: { readonly service: string },
    done: (error: Error | null, answer?: { readonly status: string }) => void,
  ): void;
}

interface Asking extends Client {
  ShouldRateLimit(
    request: ShouldRateLimit,
    metadata: Metadata,
    done: (error: Error | null, answer: Answer) => void,
  ): void;
}

/** Clients of Envoy's rate limit service, made of its public definition as any client in JavaScript is. */
export function envoyClients(): {
  open(address: string, secured?: ChannelCredentials): EnvoyClient;
} {
  const definition = loadSync(PROTO, {
    includeDirs: [import.meta.dirname],
    keepCase: true,
    enums: String,
    longs: Number,
    defaults: true,
  });
  const service = definition["envoy.service.ratelimit.v3.RateLimitService"]!;
  const health = loadSync(HEALTH_PROTO, { enums: String, defaults: true })[
    "grpc.health.v1.Health"
  ]!;
  const { RateLimitService, Health } = loadPackageDefinition({
    RateLimitService: service,
    Health: health,
  });
  const opened: Client[] = [];
  afterEach(() => {
    for (const client of opened.splice(0)) client.close();
  });
  return {
    open(address, secured = credentials.createInsecure()) {
      const Service = RateLimitService as ServiceClientConstructor;
      const client = new Service(address, secured) as unknown as Asking;
      const HealthService = Health as ServiceClientConstructor;
      const checking = new HealthService(address, secured) as unknown as Checking;
      opened.push(client, checking);
      return {
        check: (asked = "") =>
          new Promise((resolve, reject) => {
            checking.Check({ service: asked }, (error, { status } = { status: "" }) =>
              error === null ? resolve(status) : reject(error),
            );
          }),
        ask(request, given = {}) {
          const metadata = new Metadata();
          for (const [name, value] of Object.entries(given)) metadata.set(name, value);
          return new Promise((resolve, reject) => {
            client.ShouldRateLimit(request, metadata, (error, answer) => {
              if (error !== null) return reject(error);
              const pairs = answer.response_headers_to_add.map(({ key, value }) => [key, value]);
              resolve({ ...answer, headers: Object.fromEntries(pairs) as Answer["headers"] });
            });
          });
        },
      };
    },
  };
}
