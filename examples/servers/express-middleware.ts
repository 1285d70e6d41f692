/**
 * Limits the requests of each client, by API key or IP address. With $REDIS_URL set, all processes that run this share
 * the limit.
 */
import { createHash } from "node:crypto";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import express, { type Request, type RequestHandler } from "express";
import { createSluice, rateLimitHeaders, type Bucket } from "sluice";
import { onStop, ownPrefix } from "../shared/own-prefix.ts";

/** Behind a proxy, set Express's "trust proxy". Otherwise all clients share the proxy's address. */
function clientOf(request: Request): string {
  const client = request.get("x-api-key") ?? request.ip ?? "unknown";
  // The hash keeps API keys out of Redis, and makes a valid key of any text from a client.
  return createHash("sha256").update(client).digest("base64url");
}

function rateLimit(bucket: Bucket): RequestHandler {
  return async (request, response, next) => {
    const decision = await bucket.tryDraw({ key: clientOf(request) });
    response.set(rateLimitHeaders(decision));
    if (decision.allowed) return next();
    response.status(429).json({ error: "Too many requests", limit: decision.limitedBy });
  };
}

const own = ownPrefix("express");
const sluice = createSluice({ prefix: own.prefix });
const bucket = sluice.bucket("express-clients", { perKey: { rate: "60/min", burst: 10 } });
const app = express();
app.use(rateLimit(bucket));
app.get("/", (_request, response) => {
  response.json({ hello: "world" });
});

const server = app.listen(Number(process.env["PORT"] ?? 3_000), "127.0.0.1");
onStop(async () => {
  server.close();
  await sluice.close();
  await own[Symbol.asyncDispose]();
});
await once(server, "listening");
console.log(`Ask http://127.0.0.1:${(server.address() as AddressInfo).port} more than 10 times.`);
