import { AsyncLocalStorage } from "node:async_hooks";
import { afterEach, expect, it, vi } from "vitest";
import { useBuiltSandbox } from "../../support/children/built-sandbox.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";
import { openHooks, put, startReceiver, untilIdle } from "../../support/webhooks/open-hooks.ts";

const sluices = realSluices();
const run = vi.spyOn(AsyncLocalStorage.prototype, "run");
afterEach(() => run.mockClear());

/** How many handlers ran with the slot of their job in async storage. */
function handlersInStorage(): number {
  return run.mock.calls.filter(([given]) => {
    return typeof given === "object" && given !== null && "drawnFor" in given;
  }).length;
}

it("a handler that may call through its bucket runs in async storage", async () => {
  const sluice = sluices.open();
  const queue = sluice.queue("jobs", { bucket: sluice.bucket("a", { rate: "100/s" }) });
  sluice.worker(queue, () => "done");

  await (await queue.enqueue(1)).finished();

  expect(handlersInStorage()).toBe(1);
});

it("a handler in a process of its own turns no async storage on in this one", async () => {
  useBuiltSandbox();
  const sluice = sluices.open();
  const queue = sluice.queue("jobs", { bucket: sluice.bucket("a", { rate: "100/s" }) });
  sluice.worker(queue, new URL("../../support/handlers/many-ways.mjs", import.meta.url));

  await (await queue.enqueue({ do: "nothing" })).finished();

  expect(handlersInStorage()).toBe(0);
});

it("webhooks turn no async storage on", async () => {
  const hooks = openHooks(sluices);
  const receiver = await startReceiver();
  await put(hooks, { tenant: "acme", id: "a", url: receiver.url });
  await put(hooks, { tenant: "acme", id: "b", url: receiver.url, ordered: true });
  hooks.worker();

  await hooks.send({ tenant: "acme", type: "note.made", data: 1 });
  await untilIdle(hooks);

  expect(receiver.arrivals.length).toBeGreaterThanOrEqual(2);
  expect(handlersInStorage()).toBe(0);
});
