/** A replica that calls an API through its vendor's client, whose own retries are off. */
import { Octokit } from "@octokit/rest";
import OpenAI from "openai";
import Stripe from "stripe";
import { createSluice, type ThrottledFetch } from "sluice";

/** What such a process is told, as JSON. */
export interface SdkCallerConfig {
  readonly redis: string;
  readonly prefix: string;
  readonly rate: string;
  readonly sdk: keyof typeof SDKS;
  readonly url: string;
  readonly calls: number;
}

/** Each gives a function that makes the call of a number, and tells what came of it. */
type ConnectSdk = (url: string, fetch: ThrottledFetch) => (number: number) => Promise<string>;

const openai: ConnectSdk = (url, fetch) => {
  const client = new OpenAI({ apiKey: "sk-test", baseURL: `${url}/v1`, fetch, maxRetries: 0 });
  return async (number) => {
    const messages = [{ role: "user" as const, content: `say ${number}` }];
    const request = { model: "gpt-test", messages };
    if (number % 2 === 0) {
      const completion = await client.chat.completions.create(request);
      return completion.choices[0]?.message.content ?? "";
    }
    let text = "";
    for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
      text += chunk.choices[0]?.delta.content ?? "";
    }
    return text;
  };
};

const stripe: ConnectSdk = (url, fetch) => {
  const { hostname: host, port } = new URL(url);
  const client = new Stripe("sk_test_1", {
    protocol: "http",
    host,
    port,
    httpClient: Stripe.createFetchHttpClient(fetch),
    maxNetworkRetries: 0,
    telemetry: false,
  });
  return async (number) => {
    const order = { amount: 1_000, currency: "eur", description: `say ${number}` };
    const { description } =
      number % 2 === 0
        ? await client.paymentIntents.create(order)
        : await client.charges.create({ ...order, source: "tok_visa" });
    return description ?? "";
  };
};

const octokit: ConnectSdk = (url, fetch) => {
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const client = new Octokit({ baseUrl: url, request: { fetch }, log });
  return async (number) => {
    const about = { owner: "octo", repo: "cat", labels: `say ${number}` };
    const { data } = await client.rest.issues.listForRepo(about);
    return data[0]?.title ?? "";
  };
};

const SDKS = { openai, stripe, octokit };

const config = JSON.parse(process.argv[2] ?? "{}") as SdkCallerConfig;
const { redis, prefix } = config;
const sluice = createSluice({ redis, prefix, storeTimeoutMs: 30_000 });
const bucket = sluice.bucket("api", { rate: config.rate });
const call = SDKS[config.sdk](config.url, bucket.fetch);

process.send?.("ready");
await new Promise<void>((resolve) => process.once("message", () => resolve()));
const outcomes = await Promise.all(
  Array.from({ length: config.calls }, (_, number) =>
    call(number).catch((error: unknown) => String(error)),
  ),
);
process.send?.(outcomes);
await sluice.close();
process.disconnect?.();
