import { Redis } from "ioredis";
import { describe, expect, it } from "vitest";
import { serverNames } from "../../../src/stores/redis/requests/breaker.ts";

const named = (options: object): string =>
  serverNames(new Redis({ lazyConnect: true, ...options }))("b");

describe("the name of a server", () => {
  it.each([
    [{}, "localhost:6379"],
    [{ host: "db", port: 7_000, username: "me", password: "secret" }, "db:7000"],
    [{ host: "db", db: 3 }, "db:6379/3"],
    [{ host: "::1" }, "[::1]:6379"],
    [{ path: "/run/redis.sock" }, "/run/redis.sock"],
    [{ sentinels: [{ host: "s", port: 1 }], name: "main", sentinelPassword: "secret" }, "main"],
  ])("is its address, without credentials: %j", (options, name) => {
    expect(named(options)).toBe(name);
  });

  it("omits the credentials in front of the @ of a URL", () => {
    const redis = new Redis("redis://me:secret@db:6400/2", { lazyConnect: true });

    expect(serverNames(redis)("b")).toBe("db:6400/2");
  });
});
