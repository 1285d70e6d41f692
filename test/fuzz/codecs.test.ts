import { randomBytes } from "node:crypto";
import fc from "fast-check";
import { expect, it } from "vitest";
import { CodecError } from "sluice";
import { compression, encryption, offload, type PayloadStore } from "sluice/codec";
import { createPayloads } from "../../src/core/codec.ts";
import { forAll } from "./support/outcomes.ts";

/** A store in memory, so that many cases run. The file store has tests with files. */
function memoryStore(): PayloadStore {
  const stored = new Map<string, Uint8Array>();
  return {
    async put(bytes) {
      stored.set(String(stored.size), bytes);
      return String(stored.size - 1);
    },
    async get(reference) {
      const found = stored.get(reference);
      if (found === undefined) throw new Error("no such payload");
      return found;
    },
  };
}

const payloads = createPayloads("jobs", [
  compression({ aboveBytes: 20 }),
  encryption({ keys: { current: "k1", k1: randomBytes(32) } }),
  offload({ store: memoryStore(), aboveBytes: 100 }),
]);
const RUNS = 300;
const about = { kind: "data", dueInMs: 0, isShared: false } as const;

it("whatever JSON is encoded is decoded again", async () => {
  await forAll(RUNS, fc.jsonValue(), async (value) => {
    const json = JSON.stringify(value);
    const envelope = JSON.parse(JSON.stringify(await payloads.encode(json, about))) as unknown;

    expect(await payloads.decode(envelope, { kind: "data" })).toEqual(JSON.parse(json));
  });
});

it("rubbish is either returned as it is, or rejected with CodecError", async () => {
  const steps = fc.array(
    fc.oneof(
      fc.constantFrom("gzip", "aes-256-gcm:k1", "aes-256-gcm:k2", "offload", "offload:x", "", ":"),
      fc.string(),
    ),
    { maxLength: 12 },
  );
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 200 }).map((each) => Buffer.from(each).toString("base64")),
    fc.string(),
  );
  const envelope = fc.record({ "$sluice:codec": steps, bytes });
  const others = fc.oneof(
    fc.jsonValue(),
    fc.record({ "$sluice:codec": fc.jsonValue(), bytes: fc.jsonValue() }),
  );
  await forAll(RUNS, fc.oneof(envelope, others), async (given) => {
    const decoded = payloads.decode(given, { kind: "data", id: "17" });

    if (!(decoded instanceof Promise)) {
      expect(decoded).toBe(given);
      return;
    }
    const [outcome] = await Promise.allSettled([decoded]);
    if (outcome.status === "fulfilled") return;
    expect(outcome.reason).toBeInstanceOf(CodecError);
    expect(outcome.reason).toMatchObject({ code: "ERR_CODEC", id: "17", action: "decode" });
  });
});

it("one changed bit of an encrypted payload is noticed", async () => {
  const secret = createPayloads(
    "jobs",
    encryption({ keys: { current: "k1", k1: randomBytes(32) } }),
  );
  await forAll(RUNS, fc.nat(), async (at) => {
    const envelope = (await secret.encode('{"n":1}', about)) as { bytes: string };
    const bytes = Buffer.from(envelope.bytes, "base64");
    bytes[at % bytes.length]! ^= 1;

    const changed = { ...envelope, bytes: bytes.toString("base64") };
    await expect(secret.decode(changed, { kind: "data" })).rejects.toBeInstanceOf(CodecError);
  });
});
