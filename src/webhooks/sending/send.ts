import { randomBytes } from "node:crypto";
import * as z from "zod";
import type { Payloads } from "../../core/codec.ts";
import type { Logger } from "../../core/logger.ts";
import { readOptions } from "../../core/input/options.ts";
import { createCallOrder } from "../../queue/enqueue/call-order.ts";
import { ID, type TenantOf } from "../names.ts";
import { EVENT_TYPE, MESSAGE_ID } from "../signing/sign.ts";
import { wanting, type FanOut, type Targets } from "./fan-out.ts";
import { ADVISED_BYTES, bodyOf, jsonOf } from "./message.ts";

/** The options of `send`. */
export interface SendOptions {
  /** The tenant of the event. Omit it if the sender has only one tenant. */
  readonly tenant?: string | undefined;
  /** The event's type: `"invoice.paid"`. */
  readonly type: string;
  /** The event's data, up to 256 kB of JSON. */
  readonly data: unknown;
  /**
   * The id of the message, which all its attempts share: 1 to 128 letters, digits, `_` and `-`.
   * While a message is kept, at least a day, another message with the same id is not sent. Defaults
   * to a random id.
   */
  readonly id?: string | undefined;
  /**
   * Sends the event to this endpoint only, regardless of its types and filter. Defaults to all
   * endpoints of the tenant that subscribe to it.
   */
  readonly endpoint?: string | undefined;
}

/** The options of `test`. */
export interface TestOptions {
  readonly tenant?: string | undefined;
  readonly id: string;
}

/** A stored message. */
export interface SentMessage {
  readonly id: string;
  /** False if a message with this id was already sent. The content of that message then applies. */
  readonly isNew: boolean;
  /** The ids of the endpoints that receive the message. */
  readonly endpoints: readonly string[];
}

export interface Sending {
  /**
   * Stores a message, and a job for each endpoint that subscribes to it. Resolves when Redis has
   * stored them.
   *
   * @throws {@link InvalidOptionError} when an option can never work, or the data is not JSON, or
   * too large.
   * @throws {@link EndpointMissingError} when `endpoint` names an endpoint that the tenant does not
   * have.
   * @throws {@link EndpointDisabledError} when `endpoint` names an endpoint that is disabled.
   * @throws {@link StoreUnavailableError} when Redis did not confirm the message. Send the message
   * again with the same `id`: nothing is sent twice.
   */
  send(options: SendOptions): Promise<SentMessage>;
  /**
   * Sends an event of type `webhook.test` to one endpoint, within the endpoint's limits and after
   * all other messages. Throws the same errors as `send`.
   */
  test(options: TestOptions): Promise<SentMessage>;
}

const SEND = z.strictObject({
  tenant: ID.optional(),
  type: EVENT_TYPE,
  data: z.unknown(),
  id: MESSAGE_ID.optional(),
  endpoint: ID.optional(),
});
const TEST = z.strictObject({ tenant: ID.optional(), id: ID });

export interface SendingParts {
  readonly fanOut: FanOut;
  readonly tenantOf: TenantOf;
  readonly logger: Logger;
}

/** The access of an outbox to a webhook sender. */
export interface MessageRows {
  /** Checks the options of `send` without Redis. Returns the data to write into a row, and the other options. */
  take(
    where: string,
    given: unknown,
  ): Promise<{ readonly json: string; readonly options: Omit<SendOptions, "data"> }>;
  /** Returns the data of a row. Throws {@link CodecError} if this process cannot decode it. */
  dataOf(row: { readonly id: string; readonly json: string }): unknown;
}

const messageRows = new WeakMap<object, MessageRows>();

/** Registers the access for an outbox, so that `messageRowsOf` can return it. */
export function keepMessageRows(
  webhooks: object,
  parts: Omit<SendingParts, "fanOut"> & { readonly payloads: Payloads },
): void {
  const { payloads } = parts;
  messageRows.set(webhooks, {
    async take(where, given) {
      const { data: _data, ...options } = readOptions(where, SEND, given);
      const tenant = parts.tenantOf(where, options.tenant);
      const { data } = given as SendOptions;
      const { json } = readData(where, data, { tenant, type: options.type, logger: parts.logger });
      const about = { kind: "webhook", id: options.id, dueInMs: 0, isShared: false } as const;
      const envelope = await payloads.encode(json, about);
      return { json: envelope === undefined ? json : JSON.stringify(envelope), options };
    },
    dataOf: ({ id, json }) => payloads.decode(JSON.parse(json), { kind: "webhook", id }),
  });
}

/** Returns the access of an outbox to this sender. Undefined if the value is not a sender. */
export function messageRowsOf(webhooks: unknown): MessageRows | undefined {
  return typeof webhooks === "object" && webhooks !== null ? messageRows.get(webhooks) : undefined;
}

export function createSending(parts: SendingParts): Sending {
  const { fanOut, tenantOf, logger } = parts;
  const takeTurn = createCallOrder();

  /**
   * Keeps messages in the order in which they were sent, regardless of how long each endpoint
   * look-up takes.
   */
  async function inTurn(tenant: string, finding: Promise<Targets>): Promise<Targets> {
    const turn = takeTurn([tenant]);
    try {
      const targets = await finding;
      await turn.begun;
      return targets;
    } finally {
      turn.end();
    }
  }

  return {
    async send(given) {
      const where = "send()";
      const read = readOptions(where, SEND, given);
      const { type, id = newId(), endpoint } = read;
      const tenant = tenantOf(where, read.tenant);
      const { json, data } = readData(where, (given as SendOptions).data, { tenant, type, logger });
      const targets = await inTurn(
        tenant,
        endpoint === undefined
          ? fanOut.endpointsOf(tenant).then((all) => wanting(all, type, data))
          : fanOut.oneOf(tenant, endpoint),
      );
      const body = bodyOf(type, Date.now(), json);
      return { id, ...(await fanOut.store({ tenant, id, type, body }, targets, "send")) };
    },
    async test(given) {
      const where = "test()";
      const read = readOptions(where, TEST, given);
      const tenant = tenantOf(where, read.tenant);
      const target = await fanOut.oneOf(tenant, read.id);
      const type = "webhook.test";
      const body = bodyOf(type, Date.now(), '{"test":true}');
      const id = newId();
      return { id, ...(await fanOut.store({ tenant, id, type, body }, target, "test")) };
    },
  };
}

/** Returns the event data as JSON, and the value parsed back from that JSON. */
export function readData(
  where: string,
  given: unknown,
  {
    logger,
    ...facts
  }: { readonly logger: Logger; readonly type: string; readonly tenant?: string },
): { readonly json: string; readonly data: unknown } {
  const json = jsonOf(where, given);
  const bytes = Buffer.byteLength(json);
  if (bytes > ADVISED_BYTES) {
    const text = `A webhook has more than ${ADVISED_BYTES} bytes; some receivers refuse that.`;
    logger.warn({ ...facts, bytes }, text);
  }
  return { json, data: JSON.parse(json) as unknown };
}

export function newId(): string {
  return `msg_${randomBytes(16).toString("base64url")}`;
}
