/** What a preset makes of results, and responses that stream. */
import type { LlmBucket } from "sluice/llm";

/** What a preset settles of a result, for a call of which nothing else is known. */
export async function settled(
  preset: LlmBucket,
  result: unknown,
  request: object = {},
): Promise<unknown> {
  const learned = async () => new Map<string, number>();
  return preset.settle(result, {
    args: [request],
    key: undefined,
    keys: undefined,
    cost: undefined,
    learned,
    learn() {},
  });
}

/** A response whose body comes in pieces of so many bytes. */
export function streamed(type: string, bytes: Uint8Array, size: number): Response {
  const body = new ReadableStream({
    start(controller) {
      for (let at = 0; at < bytes.length; at += size)
        controller.enqueue(bytes.slice(at, at + size));
      controller.close();
    },
  });
  return new Response(body, { headers: { "content-type": type } });
}

export function events(...data: readonly unknown[]): Uint8Array {
  return Buffer.from(data.map((each) => `data: ${JSON.stringify(each)}\n\n`).join(""));
}
