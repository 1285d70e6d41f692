import { decodeText, type Payloads } from "../../core/codec.ts";
import { type CodecError } from "../../core/errors.ts";
import { createCallOrder } from "../../queue/enqueue/call-order.ts";
import type { WebhookStore } from "../../stores/redis/webhooks/store.ts";

/**
 * Returns the same store, which encodes the bodies of messages before it stores them, and decodes them again. A message
 * of the log or of an attempt that cannot be decoded has an empty body, and `unreadable` says why. A broadcast that
 * cannot be decoded rejects with {@link CodecError}.
 */
export function withEncodedBodies(store: WebhookStore, payloads: Payloads) {
  const takeTurn = createCallOrder();

  async function encode(body: string, id: string): Promise<string> {
    const about = { kind: "webhook", id, dueInMs: 0, isShared: false } as const;
    const envelope = await payloads.encode(JSON.stringify(body), about);
    return envelope === undefined ? body : JSON.stringify(envelope);
  }

  function decode(body: string, id: string): Promise<string> {
    return decodeText(payloads, body, { kind: "webhook", id });
  }

  /** Decodes the body of a stored message. A message without a body stays as it is. */
  async function readable<Message extends { readonly body?: string | undefined }>(
    message: Message,
    id: string,
  ): Promise<Message & { readonly unreadable?: CodecError | undefined }> {
    if (message.body === undefined) return message;
    try {
      return { ...message, body: await decode(message.body, id) };
    } catch (error) {
      return { ...message, body: "", unreadable: error as CodecError };
    }
  }

  return {
    ...store,
    async storeMessage(message) {
      const turn = takeTurn(message.ordered.length === 0 ? [] : [message.tenant]);
      try {
        const body = await encode(message.body, message.message);
        await turn.begun;
        const storing = store.storeMessage({ ...message, body });
        turn.end();
        return await storing;
      } finally {
        turn.end();
      }
    },
    async beginBroadcast(broadcast) {
      const body = await encode(broadcast.body, broadcast.id);
      const begun = await store.beginBroadcast({ ...broadcast, body });
      return { ...begun, body: await decode(begun.body, broadcast.id) };
    },
    begin: async (attempt) => readable(await store.begin(attempt), attempt.message),
    async beginStep(step) {
      const begun = await store.beginStep(step);
      if (begun === undefined) return begun;
      const messages = begun.messages.map((each) => readable(each, each.message));
      return { ...begun, messages: await Promise.all(messages) };
    },
    async message(name) {
      const found = await store.message(name);
      return found && readable(found, name.message);
    },
  } satisfies WebhookStore;
}

/** A store whose messages say why their body cannot be decoded. */
export type ReadableStore = ReturnType<typeof withEncodedBodies>;
