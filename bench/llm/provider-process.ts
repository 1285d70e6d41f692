/** A fake LLM API in a separate process: `provider-process.ts <ProviderConfig as JSON>`. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { createFakeProvider, LATENCY_MS, type Provider } from "../../test/support/llm/fake-llm.ts";
import { flowing, sliding, windowed, type Quota } from "../../test/support/llm/quotas.ts";

const KINDS = { flowing, sliding, windowed };

export interface ProviderConfig {
  readonly provider: Provider;
  /** The quotas of each unit: the kind of count, the amount, and the period in seconds. */
  readonly quotas: Readonly<Record<string, readonly QuotaGiven[]>>;
}

export type QuotaGiven = readonly [kind: keyof typeof KINDS, count: number, perS: number];

/** The provider's report, on request. */
export interface ProviderSays {
  readonly answers: number;
  readonly refusals: readonly string[];
  /** The amount of each unit that was used since the last report; `seconds` is the time since then. */
  readonly taken: Readonly<Record<string, number>>;
  readonly seconds: number;
  /** The longest time since the last report for which the process was blocked. */
  readonly stillMs: number;
}

const LOOK_MS = 5;

const { provider, quotas } = JSON.parse(process.argv[2]!) as ProviderConfig;
const made = Object.entries(quotas).map(([unit, given]): [string, Quota[]] => [
  unit,
  given.map(([kind, count, perS]) => KINDS[kind](count, perS)),
]);
const fake = createFakeProvider({ provider, quotas: Object.fromEntries(made) });
let askedMs = performance.now();
let lookedMs = performance.now();
let stillMs = 0;
setInterval(() => {
  const nowMs = performance.now();
  stillMs = Math.max(stillMs, nowMs - lookedMs - LOOK_MS);
  lookedMs = nowMs;
}, LOOK_MS).unref();

const server = createServer(async (request, response) => {
  const body = await text(request);
  const { status, headers, end } = fake.answer({ path: request.url!, body });
  response.writeHead(status, headers);
  setTimeout(() => response.end(end()), LATENCY_MS);
});

function say(): ProviderSays {
  const nowMs = performance.now();
  const taken: Record<string, number> = {};
  for (const { atMs, amounts } of fake.taken) {
    if (atMs < askedMs) continue;
    for (const [unit, amount] of Object.entries(amounts)) {
      taken[unit] = (taken[unit] ?? 0) + amount;
    }
  }
  const seconds = (nowMs - askedMs) / 1_000;
  const said = { answers: fake.taken.length, refusals: fake.refusals, taken, seconds, stillMs };
  askedMs = nowMs;
  stillMs = 0;
  return said;
}

server.listen(0, "127.0.0.1", () => {
  process.on("message", () => process.send!(say()));
  process.once("disconnect", () => process.exit(0));
  process.send!(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
