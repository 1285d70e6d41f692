/**
 * A proxy for OpenAI's API, for clients that cannot be changed. Each request waits for its slot and its tokens. Set the
 * base URL of any client to this proxy. With $REDIS_URL set, all proxies share the limits. `$OPENAI_BASE_URL` names
 * another server with the same API.
 */
import process from "node:process";
import { createSluice } from "sluice";
import { openai } from "sluice/llm";
import { createServer } from "sluice/server";
import { onStop, ownPrefix } from "../shared/own-prefix.ts";

const own = ownPrefix("openai-proxy");
const sluice = createSluice({ prefix: own.prefix });
const limits = { requests: "500/min", tokens: "200000/min" } as const;
const bucket = sluice.bucket("openai", openai(limits));
const to = process.env["OPENAI_BASE_URL"] ?? "https://api.openai.com/v1";

const server = await createServer(sluice, {
  port: Number(process.env["PORT"] ?? 3_010),
  insecureLocal: true,
  logger: false,
  // A client can limit its wait with the request header `x-sluice-max-wait`.
  forward: { openai: { to, bucket } },
});
onStop(async () => {
  await server.close();
  await sluice.close();
  await own[Symbol.asyncDispose]();
});
const { url } = await server.listen();
console.log(`Point a client at it: OPENAI_BASE_URL=${url}/openai`);
