import { getEventListeners } from "node:events";
import process from "node:process";
import { describe, expect, it } from "vitest";
import { createEmitter } from "../../../src/core/events/events.ts";
import { InvalidOptionError } from "../../../src/core/errors.ts";

interface Events {
  readonly news: { readonly number: number };
}

function abortable() {
  const controller = new AbortController();
  return { signal: controller.signal, abort: () => controller.abort() };
}

function open() {
  const problems: string[] = [];
  const log = (_facts: object, message: string): void => void problems.push(message);
  const emitter = createEmitter<Events>("a paper", ["news"], { warn: log, error: log });
  return { emitter, problems };
}

describe("an emitter", () => {
  it("calls each listener until it is removed", () => {
    const { emitter } = open();
    const heard: number[] = [];
    const listener = ({ number }: Events["news"]): void => void heard.push(number);
    emitter.on("news", listener);
    emitter.emit("news", { number: 1 });

    emitter.off("news", listener);
    emitter.emit("news", { number: 2 });

    expect(heard).toEqual([1]);
  });

  it("returns a function that removes only this listener", () => {
    const { emitter } = open();
    const heard: string[] = [];
    const stop = emitter.on("news", () => heard.push("first"));
    emitter.on("news", () => heard.push("second"));

    stop();
    stop();
    emitter.emit("news", { number: 1 });

    expect(heard).toEqual(["second"]);
  });

  it("removes listeners by their signal, however many share it", () => {
    const { emitter } = open();
    const { signal, abort } = abortable();
    const warned: unknown[] = [];
    const onWarning = (warning: unknown): void => void warned.push(warning);
    process.on("warning", onWarning);
    const heard: number[] = [];
    for (let each = 0; each < 30; each++) emitter.on("news", () => heard.push(each), { signal });
    emitter.emit("news", { number: 1 });

    abort();
    emitter.emit("news", { number: 2 });

    expect(heard).toHaveLength(30);
    expect(emitter.hasListener("news")).toBe(false);
    expect(getEventListeners(signal, "abort").length).toBeLessThan(2);
    process.off("warning", onWarning);
    expect(warned).toEqual([]);
  });

  it("adds no listener for a signal that is already aborted", () => {
    const { emitter } = open();

    emitter.on("news", () => expect.unreachable(), { signal: AbortSignal.abort() });
    emitter.emit("news", { number: 1 });

    expect(emitter.hasListener("news")).toBe(false);
  });

  it("calls a listener once that was added twice, and follows its last signal", () => {
    const { emitter } = open();
    const { signal, abort } = abortable();
    const heard: number[] = [];
    const listener = ({ number }: Events["news"]): void => void heard.push(number);
    emitter.on("news", listener, { signal });
    emitter.on("news", listener);

    abort();
    emitter.emit("news", { number: 1 });

    expect(heard).toEqual([1]);
  });

  it("refuses an invalid signal", () => {
    const { emitter } = open();
    const listen = (): unknown => emitter.on("news", () => {}, { signal: {} as AbortSignal });

    expect(listen).toThrow('on(): option "signal" is {}; give an AbortSignal.');
  });

  it.each([
    ["throws", () => expect.unreachable("broken")],
    ["rejects", () => Promise.reject(new Error("broken"))],
  ])("logs an error of a listener that %s, and calls the others", async (_how, listener) => {
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

  it("refuses an unknown event", () => {
    const { emitter } = open();
    const listen = (): unknown => emitter.on("olds" as never, () => {});

    expect(listen).toThrow(InvalidOptionError);
  });
});
