import { decodeText, type Payloads } from "../../core/codec.ts";
import { type CodecError } from "../../core/errors.ts";
import type { WebhookStore } from "../../stores/redis/webhooks/store.ts";

/**
 * Returns the same store, which encodes the bodies of messages before it stores them, and decodes them again. A message
 * of the log that cannot be decoded has an empty body, and `unreadable` says why. All other reads of such a message
 * reject with {@link CodecError}.
 */
export function withEncodedBodies(store: WebhookStore, payloads: Payloads): WebhookStore {
  async function encode(body: string, id: string): Promise<string> {
    const about = { kind: "webhook", id, dueInMs: 0, isShared: false } as const;
    const envelope = await payloads.encode(JSON.stringify(body), about);
    return envelope === undefined ? body : JSON.stringify(envelope);
  }

  function decode(body: string, id: string): Promise<string> {
    return decodeText(payloads, body, { kind: "webhook", id });
  }

  return {
    ...store,
    async storeMessage(message) {
      const body = await encode(message.body, message.message);
      return store.storeMessage({ ...message, body });
    },
    async beginBroadcast(broadcast) {
      const body = await encode(broadcast.body, broadcast.id);
      const begun = await store.beginBroadcast({ ...broadcast, body });
      return { ...begun, body: await decode(begun.body, broadcast.id) };
    },
    async begin(attempt) {
      const begun = await store.begin(attempt);
      if (begun.body === undefined) return begun;
      return { ...begun, body: await decode(begun.body, attempt.message) };
    },
    async beginStep(step) {
      const begun = await store.beginStep(step);
      if (begun === undefined) return begun;
      const messages = begun.messages.map(async (each) =>
        each.body === undefined ? each : { ...each, body: await decode(each.body, each.message) },
      );
      return { ...begun, messages: await Promise.all(messages) };
    },
    async message(name) {
      const found = await store.message(name);
      if (found === undefined) return found;
      try {
        return { ...found, body: await decode(found.body, name.message) };
      } catch (error) {
        return { ...found, body: "", unreadable: error as CodecError };
      }
    },
  };
}
