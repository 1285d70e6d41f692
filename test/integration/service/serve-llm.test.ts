import OpenAI from "openai";
import { expect, inject, it } from "vitest";
import { waitUntil } from "../../support/async/wait-until.ts";
import { scriptProcesses } from "../../support/children/script-process.ts";
import { startFakeLlm } from "../../support/llm/reach-fake.ts";
import { flowing } from "../../support/llm/quotas.ts";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const processes = scriptProcesses();
const apis = fakeApis();

function serve(...args: string[]) {
  return processes.start("src/cli/main.ts", {
    args: ["--prefix", sluices.prefix(), "serve", "--port", "0", "--insecure-local", ...args],
    env: { REDIS_URL: inject("redisUrl") },
  });
}

it("sluice serve --llm keeps a client of OpenAI within its tokens, and charges what answers say", async () => {
  // Of 10 requests that reserve 400 tokens each, half would be refused.
  const api = await startFakeLlm(apis, {
    provider: "openai",
    quotas: { tokens: [flowing(2_000, 1)] },
  });
  const llm = "gpt=openai,tokens=2000/s,headroom=0.1";
  const server = serve("--forward", `gpt=${api.url}`, "--llm", llm);
  await waitUntil(() => /^http\S+$/m.test(server.stdout), "it says its URL");
  const baseURL = `${/^http\S+$/m.exec(server.stdout)![0]}/gpt/v1`;
  const client = new OpenAI({ apiKey: "sk-theirs", baseURL, maxRetries: 0 });
  const messages = [{ role: "user" as const, content: "Why?" }];
  const ask = { model: "gpt-test", messages, max_tokens: 400 };

  const answers = await Promise.all(
    Array.from({ length: 10 }, () => client.chat.completions.create(ask)),
  );

  expect(answers.map(({ usage }) => usage!.completion_tokens)).toEqual(Array(10).fill(120));
  expect(api.refusals).toEqual([]);
  expect(api.calls[0]!.headers["authorization"]).toBe("Bearer sk-theirs");
  const bucket = await sluices.open().find("gpt");
  const { limits } = await bucket!.peek();
  expect(new Set(limits.map(({ unit }) => unit))).toEqual(new Set(["tokens"]));
});

it("sluice serve --llm gives back what a call did not take", async () => {
  const api = await startFakeLlm(apis, { provider: "openai", quotas: {} });
  const llm = "gpt=openai,tokens=600000/h,counts=used,headroom=0";
  const server = serve("--forward", `gpt=${api.url}`, "--llm", llm);
  await waitUntil(() => /^http\S+$/m.test(server.stdout), "it says its URL");
  const baseURL = `${/^http\S+$/m.exec(server.stdout)![0]}/gpt/v1`;
  const client = new OpenAI({ apiKey: "x", baseURL, maxRetries: 0 });
  const messages = [{ role: "user" as const, content: "Why?" }];

  const answer = await client.chat.completions.create({
    model: "gpt-test",
    messages,
    max_tokens: 100_000,
  });

  const used = answer.usage!.total_tokens;
  const bucket = (await sluices.open().find("gpt"))!;
  const leftOf = async (): Promise<number> =>
    (await bucket.peek()).limits.find(({ name }) => name.includes("at most"))!.remaining!;
  expect(used).toBeLessThan(40_000);
  await waitUntil(async () => (await leftOf()) === 600_000 - used, "it is charged what it used");
});

it.each([
  ["gpt", "give a bucket, an API and its limits"],
  ["gpt=openai,tokens", "give a bucket, an API and its limits"],
  ["gpt=mistral,tokens=1/s", "name an API: openai, azure, anthropic, gemini, bedrock"],
  ["other=openai,tokens=1/s", "name the bucket of a --forward; there are gpt"],
  ["gpt=openai", "give the limits of your account"],
  ["gpt=openai,token=1/s", "tokens"],
])("sluice serve --llm %s is refused as wrong usage", async (llm, remedy) => {
  const server = serve("--forward", "gpt=http://127.0.0.1:9", "--llm", llm);

  expect(await server.ended).toBe(2);
  expect(server.stderr).toContain(remedy);
});
