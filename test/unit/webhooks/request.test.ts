import { expect, it } from "vitest";
import { createRequests } from "../../../src/webhooks/delivery/request.ts";
import type { Delivered, Deliverer } from "../../../src/webhooks/delivery/deliver.ts";
import type { EndpointRecord } from "../../../src/webhooks/endpoints/record.ts";
import { fakeTimers } from "../../support/async/fake-timers.ts";

const pass = fakeTimers({ leavesNone: true });
const URL_ = "https://hooks.example.com/";
const RECORD: EndpointRecord = {
  url: URL_,
  born: "1",
  secrets: [],
  createdAtMs: 0,
  changedAtMs: 0,
};
const UNSENT: Deliverer = {
  deliver: () => Promise.reject(new Error("nothing may be sent")),
  close: () => Promise.resolve(),
};

/** One request of a sender whose `secretsOf` never returns. */
function ask(signal: AbortSignal, url = URL_): Promise<Delivered> {
  const secretsOf = (): Promise<string> => new Promise(() => {});
  const options = {
    isSingle: false,
    secretsOf,
    http: false,
    devReceiver: undefined,
    timeoutMs: 15_000,
    userAgent: "a",
  };
  const send = createRequests({ deliverer: UNSENT, sealing: undefined, options });
  const told = { id: "m", type: "note.made", body: "{}" };
  return send({ tenant: "acme", endpoint: "a" }, { ...RECORD, url }, told, { nowMs: 1, signal });
}

it("an attempt is a fault of ours when its secret does not come in time", async () => {
  const asking = ask(new AbortController().signal);

  await pass(5_000);

  expect(await asking).toMatchObject({
    outcome: "ours",
    error: "The sender could not send it.",
    detail: expect.stringContaining("secretsOf() returned nothing within 5000 ms"),
  });
});

it("an attempt whose secret does not come ends with its worker", async () => {
  const closing = new AbortController();
  const asking = ask(closing.signal);

  closing.abort(new Error("closing"));

  expect(await asking).toMatchObject({ outcome: "ours" });
});

it.each(["http://hooks.example.com/", "HTTP://hooks.example.com/", "ht\ttp://hooks.example.com/"])(
  "%j is not sent to once the sender is declared without http: true",
  async (url) => {
    const { outcome, error } = await ask(new AbortController().signal, url);

    expect({ outcome, error }).toEqual({
      outcome: "blocked",
      error: "The endpoint could not be reached.",
    });
  },
);
