import { expect, it } from "vitest";
import { tokenBucket } from "sluice";
import { openai } from "sluice/llm";
import { waitUntil } from "../../support/async/wait-until.ts";
import { services } from "../../support/server/service.ts";
import { fakeApis } from "../../support/servers/fake-api.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const servers = services();
const apis = fakeApis();

it("a forward whose bucket reads usages passes each event on before the next is there", async () => {
  let sendLast = (): void => {};
  const api = await apis.start(() => ({
    headers: { "content-type": "text/event-stream" },
    stream(response) {
      response.write('data: {"choices":[{"delta":{"content":"So."}}]}\n\n');
      sendLast = () =>
        response.end(
          'data: {"choices":[],"usage":{"total_tokens":40,"prompt_tokens":10,"completion_tokens":30}}\n\n',
        );
    },
  }));
  const sluice = sluices.open();
  const bucket = sluice.bucket("gpt", {
    ...openai({ tokens: "60000/h", counts: "used", headroom: 0 }),
    limits: [tokenBucket({ capacity: 100_000, refill: "1/h", unit: "tokens" })],
  });
  const service = await servers.start(sluice, { forward: { gpt: { to: api.url, bucket } } });

  const response = await fetch(`${service.url}/gpt/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      model: "m",
      messages: [{ role: "user", content: "Why?" }],
      stream: true,
    }),
  });
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  const first = await reader.read();
  sendLast();
  const last = await reader.read();

  expect(first.value).toContain("So.");
  expect(first.value).not.toContain("usage");
  expect(last.value).toContain("usage");
  expect((await reader.read()).done).toBe(true);
  await waitUntil(
    async () => (await bucket.peek()).limits[0]!.remaining === 99_960,
    "it is charged what its last event says",
  );
});

it("a forward ends the call at the upstream when the client hangs up, though the call holds no lease", async () => {
  let isLeft = false;
  const api = await apis.start(() => ({
    stream(response) {
      response.on("close", () => (isLeft = true));
      response.write("half");
    },
  }));
  const sluice = sluices.open();
  sluice.bucket("up", { rate: "100/s" });
  const service = await servers.start(sluice, { forward: { up: { to: api.url } } });
  const leaving = new AbortController();
  const response = await fetch(`${service.url}/up/x`, { signal: leaving.signal });
  const first = await response.body!.getReader().read();

  leaving.abort();

  await waitUntil(() => isLeft, "the upstream sees it");
  expect(first.done).toBe(false);
});
