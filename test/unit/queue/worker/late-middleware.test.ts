import { expect, it } from "vitest";
import { aroundBatch, aroundHandler } from "../../../../src/queue/worker/handlers/middleware.ts";

/** Middleware that calls `next` only after the attempt has ended. */
function late() {
  const attempt = new AbortController();
  const layer = async (_input: unknown, next: () => Promise<unknown>): Promise<unknown> => {
    attempt.abort(new Error("the attempt has ended"));
    return next();
  };
  return { layer, context: { signal: attempt.signal } as never };
}

it("runs no handler after the attempt has ended", async () => {
  const { layer, context } = late();
  let calls = 0;
  const count = (): void => void (calls += 1);
  const handler = aroundHandler(count, { all: () => [{ handler: layer as never }] });
  const all = () => [{ batch: layer as never }];
  const batch = aroundBatch(count as never, { all, onSkipped: () => {} });

  await expect(handler({} as never, context)).rejects.toThrow("the attempt has ended");
  await expect(batch([], context)).rejects.toThrow("the attempt has ended");
  expect(calls).toBe(0);
});
