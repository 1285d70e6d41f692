import { Redis } from "ioredis";
import { expect, it } from "vitest";
import { explainError } from "../../../src/stores/redis/ioredis/readiness.ts";

it.each([
  [{}, undefined, "no connection in time"],
  [{}, "connect ETIMEDOUT", "connect ETIMEDOUT"],
  [{ tls: {} }, undefined, "does the server speak TLS?"],
  [{ tls: {} }, "connect ETIMEDOUT", "does the server speak TLS?"],
  [{ tls: {} }, "connect ECONNREFUSED 127.0.0.1:1", "connect ECONNREFUSED 127.0.0.1:1"],
])(
  "a connection with %j and the error %j is reported with its likely reason",
  (options, met, told) => {
    const redis = new Redis({ ...options, lazyConnect: true });

    const { message } = explainError(redis, met === undefined ? undefined : new Error(met));

    expect(message).toContain(told);
    redis.disconnect();
  },
);
