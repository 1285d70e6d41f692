/**
 * Limits the requests of each client, by API key or IP address. With $REDIS_URL set, all processes that run this share
 * the limit.
 */
import { createHash } from "node:crypto";
import Fastify, { type FastifyInstance, type FastifyRequest } from "fastify";
import { createSluice, rateLimitHeaders, type Bucket } from "sluice";
import { onStop, ownPrefix } from "../shared/own-prefix.ts";

/** Behind a proxy, set Fastify's `trustProxy`. Otherwise all clients share the proxy's address. */
function clientOf({ headers, ip }: FastifyRequest): string {
  // The hash keeps API keys out of Redis, and makes a valid key of any text from a client.
  return createHash("sha256")
    .update(String(headers["x-api-key"] ?? ip))
    .digest("base64url");
}

async function rateLimit(app: FastifyInstance, { bucket }: { bucket: Bucket }): Promise<void> {
  app.addHook("onRequest", async (request, reply) => {
    const decision = await bucket.tryDraw({ key: clientOf(request) });
    reply.headers(rateLimitHeaders(decision));
    if (decision.allowed) return;
    await reply.code(429).send({ error: "Too many requests", limit: decision.limitedBy });
  });
}
/** Makes the hook apply to the routes next to the plugin, not only to routes inside it. */
Object.assign(rateLimit, { [Symbol.for("skip-override")]: true });

const own = ownPrefix("fastify");
const sluice = createSluice({ prefix: own.prefix });
const bucket = sluice.bucket("fastify-clients", { perKey: { rate: "60/min", burst: 10 } });
const app = Fastify();
await app.register(rateLimit, { bucket });
app.get("/", async () => ({ hello: "world" }));
app.addHook("onClose", () => sluice.close());
onStop(async () => {
  await app.close();
  await own[Symbol.asyncDispose]();
});
const address = await app.listen({ port: Number(process.env["PORT"] ?? 3_000), host: "127.0.0.1" });
console.log(`Ask ${address} more than 10 times.`);
