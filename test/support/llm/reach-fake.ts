/** Ways to reach a fake of an LLM API from a test. */
import type { ServerResponse } from "node:http";
import type { FakeApi, FakeApis } from "../servers/fake-api.ts";
import { simulateLatency } from "../servers/simulate-latency.ts";
import {
  createFakeProvider,
  LATENCY_MS,
  type FakeProvider,
  type FakeProviderOptions,
} from "./fake-llm.ts";

/** As a server. */
export async function startFakeLlm(
  apis: FakeApis,
  options: FakeProviderOptions,
): Promise<FakeProvider & FakeApi> {
  const provider = createFakeProvider(options);
  const api = await apis.start((call) => {
    const { status, headers, end } = provider.answer(call);
    const stream = (response: ServerResponse): void => {
      setTimeout(() => response.end(end()), LATENCY_MS);
    };
    return { status, headers, stream };
  });
  return { ...api, ...provider };
}

/** As a `fetch`. */
export function fetchFrom(provider: FakeProvider): typeof globalThis.fetch {
  return async (input, init) => {
    const path = new URL(String(input as string)).pathname;
    const { status, headers, end } = provider.answer({ path, body: init?.body as string });
    await simulateLatency(LATENCY_MS);
    return new Response(end(), { status, headers });
  };
}
