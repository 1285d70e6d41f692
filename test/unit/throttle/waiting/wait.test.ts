import { getEventListeners } from "node:events";
import { describe, expect, it, vi } from "vitest";
import { pauseFor, Wait, type WaitLimits } from "../../../../src/throttle/waiting/wait.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";

const advance = fakeTimers({ leavesNone: true });

/** A wait that notes down how it ended. */
function setUp(bounds: WaitLimits) {
  const ends: string[] = [];
  const waiting = {
    onCancel: (reason: unknown) => void ends.push(`left: ${String(reason)}`),
    onExpire: () => void ends.push("expired"),
  };
  return { wait: new Wait(waiting, bounds), ends };
}

describe("a wait", () => {
  it("is left when its signal is aborted, with the signal's reason, and listens no more", () => {
    const stop = new AbortController();
    const { wait, ends } = setUp({ signal: stop.signal });

    stop.abort("stopped");

    expect(ends).toEqual(["left: stopped"]);
    expect(getEventListeners(stop.signal, "abort")).toEqual([]);
    expect(wait.end()).toBe(false);
  });

  it("expires after its time, and not before", async () => {
    const { ends } = setUp({ untilMs: performance.now() + 50 });

    await advance(49);
    const before = [...ends];
    await advance(1);

    expect(before).toEqual([]);
    expect(ends).toEqual(["expired"]);
  });

  it("expires by when it began, if that was before", async () => {
    const { ends } = setUp({ untilMs: performance.now() + 20 });

    await advance(20);

    expect(ends).toEqual(["expired"]);
  });

  it("whose time was over before expires after 1 ms, and not at once", async () => {
    const { ends } = setUp({ untilMs: performance.now() - 30 });

    const before = [...ends];
    await advance(1);

    expect(before).toEqual([]);
    expect(ends).toEqual(["expired"]);
  });

  it("is in the list while it lasts, and can be left from there", () => {
    const waits = new Set<Pick<Wait, "cancel">>();
    const { ends } = setUp({ waits });

    for (const wait of waits) wait.cancel("the worker is closed");

    expect(ends).toEqual(["left: the worker is closed"]);
    expect(waits.size).toBe(0);
  });

  it("is left when what it waits for is closed, and no longer called back after its end", () => {
    const listeners = new Set<(reason: unknown) => void>();
    const onClose = (leave: (reason: unknown) => void) => {
      listeners.add(leave);
      return () => listeners.delete(leave);
    };
    const closed = setUp({ onClose });
    const over = setUp({ onClose });
    over.wait.end();

    for (const leave of listeners) leave("closed");

    expect([closed.ends, over.ends]).toEqual([["left: closed"], []]);
    expect(listeners.size).toBe(0);
  });

  it("is left at once, and listens no more, where that is closed already", () => {
    const stopListening = vi.fn<() => void>();
    const { ends } = setUp({
      onClose: (leave) => {
        leave("closed");
        return stopListening;
      },
      untilMs: performance.now() + 50,
    });

    expect(ends).toEqual(["left: closed"]);
    expect(stopListening).toHaveBeenCalledOnce();
  });

  it("ends once: nothing ends it again", async () => {
    const stop = new AbortController();
    const { wait, ends } = setUp({ signal: stop.signal, untilMs: performance.now() + 50 });

    const hasEnded = wait.end();
    stop.abort("stopped");
    wait.cancel("left");
    wait.expire();
    await advance(50);

    expect(hasEnded).toBe(true);
    expect(ends).toEqual([]);
  });
});

describe("a pause", () => {
  it("lasts as long as it is to", async () => {
    const waits = new Set<Pick<Wait, "cancel">>();
    let isOver = false;
    void pauseFor(1_000, waits).then(() => (isOver = true));

    await advance(999);
    const before = isOver;
    await advance(1);

    expect([before, isOver]).toEqual([false, true]);
    expect(waits.size).toBe(0);
  });

  it("ends when it is left", async () => {
    const waits = new Set<Pick<Wait, "cancel">>();
    const pausing = pauseFor(1_000, waits);

    for (const wait of waits) wait.cancel("closed");

    await expect(pausing).resolves.toBeUndefined();
  });
});
