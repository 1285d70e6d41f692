import { randomBytes } from "node:crypto";
import * as z from "zod";
import type { Logger } from "../../core/logger.ts";
import { readOptions } from "../../core/input/options.ts";
import { EndpointDisabledError, EndpointMissingError } from "../../core/stores/webhooks/errors.ts";
import type { WebhookStore } from "../../core/stores/webhooks/store.ts";
import type { Ask } from "../asking.ts";
import { readRecord, type EndpointRecord } from "../endpoints/record.ts";
import { matchesFilter, matchesType } from "../endpoints/wants.ts";
import { ID, type TenantOf } from "../names.ts";
import { EVENT_TYPE, MESSAGE_ID } from "../signing/sign.ts";
import { FIRST_SERIES, jittered, storeFirst, type DeliveryQueue, type Purpose } from "./jobs.ts";
import { ADVISED_BYTES, bodyOf, jsonOf } from "./message.ts";

/** What `send` takes. */
export interface SendOptions {
  /** Whose event it is; left out where the sender has only one tenant. */
  readonly tenant?: string | undefined;
  /** What has happened: `"invoice.paid"`. */
  readonly type: string;
  /** What is told of it, up to 256 kB of JSON. */
  readonly data: unknown;
  /**
   * The message's id, 1 to 128 letters, digits, `_` and `-`, which each attempt has. While a message is kept, a day at least,
   * no other of its id is sent. Defaults to a random one.
   */
  readonly id?: string | undefined;
  /** Sends it to this endpoint alone, whatever types and filter that has. Defaults to all of the tenant that want it. */
  readonly endpoint?: string | undefined;
}

/** What `test` takes. */
export interface TestOptions {
  readonly tenant?: string | undefined;
  readonly id: string;
}

/** A message that is stored, and will be sent. */
export interface SentMessage {
  readonly id: string;
  /** False if one of this id was sent before: then that one counts. */
  readonly isNew: boolean;
  /** The endpoints that it goes to. */
  readonly endpoints: readonly string[];
}

export interface Sending {
  /**
   * Stores a message, and a job for each endpoint that wants it; resolves when Redis has all of them.
   *
   * @throws {@link InvalidOptionError} when an option can never work, or the data is not JSON, or too large.
   * @throws {@link EndpointMissingError} when it is for one endpoint that the tenant does not have.
   * @throws {@link EndpointDisabledError} when it is for one endpoint that is disabled.
   * @throws {@link StoreUnavailableError} when Redis did not confirm it. Send it again with the same `id`: nothing is doubled.
   */
  send(options: SendOptions): Promise<SentMessage>;
  /** Sends an event of type `webhook.test` to one endpoint, within its limits and after all else. Throws as `send` does. */
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
  readonly store: WebhookStore;
  readonly ask: Ask;
  readonly queue: DeliveryQueue;
  readonly tenantOf: TenantOf;
  readonly logger: Logger;
  readonly scheduleMs: readonly number[];
  readonly keepMs: number;
}

/** Endpoints of a tenant that was lately sent to, until they change. */
interface Known {
  readonly version: string;
  readonly endpoints: readonly (readonly [id: string, record: EndpointRecord])[];
}

/** Tenants whose endpoints are remembered. */
const MOST_TENANTS = 1_000;
const DAY_MS = 86_400_000;

export function createSending(parts: SendingParts): Sending {
  const { store, ask, queue, tenantOf, logger, keepMs } = parts;
  const known = new Map<string, Known>();

  /** Those that are not disabled. Another process may have changed them a moment ago. */
  async function endpointsOf(tenant: string): Promise<Known["endpoints"]> {
    const version = await ask(() => store.version(tenant));
    const found = known.get(tenant);
    if (found?.version === version) return found.endpoints;
    const { records, disabled, version: read } = await ask(() => store.endpoints(tenant));
    const endpoints = [...records]
      .filter(([id]) => !disabled.has(id))
      .map(([id, text]) => [id, readRecord(text)] as const);
    known.delete(tenant);
    known.set(tenant, { version: read, endpoints });
    if (known.size > MOST_TENANTS) known.delete(known.keys().next().value!);
    return endpoints;
  }

  async function oneOf(tenant: string, endpoint: string): Promise<Known["endpoints"]> {
    const { record, disabled } = await ask(() => store.endpoint({ tenant, endpoint }));
    if (record === undefined) throw new EndpointMissingError({ endpoint });
    if (disabled !== undefined) throw new EndpointDisabledError({ endpoint, why: disabled.why });
    return [[endpoint, readRecord(record)]];
  }

  async function storeAndQueue(
    message: { tenant: string; id: string; type: string; body: string },
    targets: Known["endpoints"],
    purpose: Purpose,
  ): Promise<SentMessage> {
    const { tenant, id, type, body } = message;
    const records = new Map(targets);
    const stored = await ask(() =>
      store.storeMessage({
        tenant,
        message: id,
        type,
        body,
        endpoints: [...records.keys()],
        keepMs: keptMs(targets),
      }),
    );
    const { isNew, endpoints, isSent } = stored;
    // Whoever stored it may have died before its jobs were.
    if (!isSent) {
      const jobs = endpoints.map((endpoint) => ({
        tenant,
        endpoint,
        message: id,
        purpose,
        attempt: 1,
        series: FIRST_SERIES,
        born: records.get(endpoint)?.born,
      }));
      const scheduleOf = (endpoint: string): readonly number[] =>
        records.get(endpoint)?.scheduleMs ?? parts.scheduleMs;
      await storeFirst(queue, jobs, ({ endpoint }) => jittered(scheduleOf(endpoint)[0]!));
      await ask(() => store.noteSent({ tenant, message: id }));
    }
    return { id, isNew, endpoints };
  }

  /** A message is there for its last attempt, however late that comes. */
  function keptMs(targets: Known["endpoints"]): number {
    const schedules = [parts.scheduleMs, ...targets.map(([, { scheduleMs = [] }]) => scheduleMs)];
    const longest = Math.max(...schedules.map((waits) => waits.reduce((sum, ms) => sum + ms, 0)));
    return Math.max(keepMs, Math.ceil(longest * 1.2) + 2 * DAY_MS);
  }

  return {
    async send(given) {
      const where = "send()";
      const read = readOptions(where, SEND, given);
      const { type, id = newId(), endpoint } = read;
      const tenant = tenantOf(where, read.tenant);
      const json = jsonOf(where, (given as SendOptions).data);
      const data: unknown = JSON.parse(json);
      const bytes = Buffer.byteLength(json);
      if (bytes > ADVISED_BYTES) {
        const facts = { tenant, type, bytes };
        logger.warn(
          facts,
          `A webhook has more than ${ADVISED_BYTES} bytes; some receivers refuse that.`,
        );
      }
      const targets =
        endpoint === undefined
          ? (await endpointsOf(tenant)).filter(
              ([, { types, filter }]) => matchesType(types, type) && matchesFilter(filter, data),
            )
          : await oneOf(tenant, endpoint);
      return storeAndQueue(
        { tenant, id, type, body: bodyOf(type, Date.now(), json) },
        targets,
        "send",
      );
    },
    async test(given) {
      const where = "test()";
      const read = readOptions(where, TEST, given);
      const tenant = tenantOf(where, read.tenant);
      const target = await oneOf(tenant, read.id);
      const type = "webhook.test";
      const body = bodyOf(type, Date.now(), '{"test":true}');
      return storeAndQueue({ tenant, id: newId(), type, body }, target, "test");
    },
  };
}

function newId(): string {
  return `msg_${randomBytes(16).toString("base64url")}`;
}
