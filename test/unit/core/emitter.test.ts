import { describe, expect, it } from "vitest";
import { createEmitter } from "../../../src/core/events.ts";
import { InvalidOptionError } from "../../../src/core/errors.ts";

interface Events {
  readonly news: { readonly number: number };
}

function open() {
  const problems: string[] = [];
  const log = (_facts: object, message: string): void => void problems.push(message);
  const emitter = createEmitter<Events>("a paper", ["news"], { warn: log, error: log });
  return { emitter, problems };
}

describe("an emitter", () => {
  it("calls each listener until it is taken off", () => {
    const { emitter } = open();
    const heard: number[] = [];
    const listener = ({ number }: Events["news"]): void => void heard.push(number);
    emitter.on("news", listener);
    emitter.emit("news", { number: 1 });

    emitter.off("news", listener);
    emitter.emit("news", { number: 2 });

    expect(heard).toEqual([1]);
  });

  it.each([
    ["throws", () => expect.unreachable("broken")],
    ["rejects", () => Promise.reject(new Error("broken"))],
  ])("tells the logger of a listener that %s, and goes on", async (_how, listener) => {
    const { emitter, problems } = open();
    const heard: number[] = [];
    emitter.on("news", listener);
    emitter.on("news", ({ number }) => heard.push(number));

    emitter.emit("news", { number: 1 });
    await Promise.resolve();
    await Promise.resolve();

    expect(heard).toEqual([1]);
    expect(problems).toEqual([expect.stringContaining("broken")]);
  });

  it("refuses an event that there is not", () => {
    const { emitter } = open();
    const listen = (): void => emitter.on("olds" as never, () => {});

    expect(listen).toThrow(InvalidOptionError);
  });
});
