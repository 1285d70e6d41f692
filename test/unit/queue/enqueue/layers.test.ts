import { expect, it } from "vitest";
import { runLayers, type Layer } from "../../../../src/queue/enqueue/middleware.ts";

const run = (layer: Layer<number, string>, innermost: () => Promise<string>) =>
  runLayers("handler", [layer], innermost, 1);
const fails = async (): Promise<string> => {
  throw new Error("the handler failed");
};
const later = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

it("fails with a failure that a layer does not look at", async () => {
  const ignoring: Layer<number, string> = async (_input, next) => {
    void next();
    await later();
    return "done";
  };

  await expect(run(ignoring, fails)).rejects.toThrow("the handler failed");
});

it("lets a layer replace a failure that it looks at late", async () => {
  const replacing: Layer<number, string> = async (_input, next) => {
    const going = next();
    await later();
    return going.catch(() => "replaced");
  };

  expect(await run(replacing, fails)).toBe("replaced");
});

it("waits for what a layer has called and left", async () => {
  let hasEnded = false;
  const leaving: Layer<number, string> = async (_input, next) => {
    void next();
    return "early";
  };

  const result = await run(leaving, async () => {
    await later();
    hasEnded = true;
    return "late";
  });

  expect([result, hasEnded]).toEqual(["early", true]);
});
