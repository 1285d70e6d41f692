/** Selects the endpoints of a message, and stores the message with a job for each endpoint. */
import { randomUUID } from "node:crypto";
import { EndpointDisabledError, EndpointMissingError } from "../errors.ts";
import type { StoredEndpoints, WebhookStore } from "../../stores/redis/webhooks/store.ts";
import { readRecord, type EndpointRecord } from "../endpoints/record.ts";
import { matchesFilter, matchesType } from "../endpoints/event-filter.ts";
import {
  FIRST_SERIES,
  jittered,
  jobIdOf,
  storeFirst,
  storeStep,
  type DeliveryQueue,
  type Purpose,
} from "./jobs.ts";

/** The endpoints of a message. */
export type Targets = readonly (readonly [id: string, record: EndpointRecord])[];

interface NewMessage {
  readonly tenant: string;
  readonly id: string;
  readonly type: string;
  readonly body: string;
}

interface Stored {
  readonly isNew: boolean;
  readonly endpoints: readonly string[];
}

export interface FanOut {
  /**
   * Returns the enabled endpoints of a tenant, from the cache unless another process has changed
   * them.
   */
  endpointsOf(tenant: string): Promise<Targets>;
  /**
   * Returns the enabled endpoints of a tenant without the cache, for callers that read each tenant
   * only once.
   */
  readEndpoints(tenant: string): Promise<Targets>;
  /**
   * Reads one endpoint.
   *
   * @throws the same errors as `send` to one endpoint.
   */
  oneOf(tenant: string, endpoint: string): Promise<Targets>;
  store(message: NewMessage, targets: Targets, purpose: Purpose): Promise<Stored>;
}

export interface FanOutParts {
  readonly store: WebhookStore;
  readonly queue: DeliveryQueue;
  readonly scheduleMs: readonly number[];
  readonly keepMs: number;
}

/** A tenant's endpoints, cached until they change. */
interface Known {
  readonly version: string;
  readonly endpoints: Targets;
}

/** The most endpoints that are cached, over all tenants. */
const MOST_KNOWN = 20_000;
const DAY_MS = 86_400_000;

export function createFanOut(parts: FanOutParts): FanOut {
  const { store, queue, keepMs } = parts;
  const known = new Map<string, Known>();
  let knownCount = 0;

  function forget(tenant: string): void {
    knownCount -= 1 + (known.get(tenant)?.endpoints.length ?? -1);
    known.delete(tenant);
  }

  function remember(tenant: string, found: Known): void {
    forget(tenant);
    known.set(tenant, found);
    knownCount += 1 + found.endpoints.length;
    for (const oldest of known.keys()) {
      if (knownCount <= MOST_KNOWN || oldest === tenant) break;
      forget(oldest);
    }
  }

  async function readEndpoints(tenant: string): Promise<Targets> {
    return enabledOf(await store.endpoints(tenant));
  }

  /**
   * Returns how long to keep a message: until after its last attempt, even if that attempt is late.
   */
  function keptMs(targets: Targets): number {
    const schedules = [parts.scheduleMs, ...targets.map(([, { scheduleMs = [] }]) => scheduleMs)];
    const longest = Math.max(...schedules.map((waits) => waits.reduce((sum, ms) => sum + ms, 0)));
    return Math.max(keepMs, Math.ceil(longest * 1.2) + 2 * DAY_MS);
  }

  return {
    readEndpoints,
    async endpointsOf(tenant) {
      const version = await store.version(tenant);
      const found = known.get(tenant);
      if (found?.version === version) return found.endpoints;
      const read = await store.endpoints(tenant);
      const endpoints = enabledOf(read);
      remember(tenant, { version: read.version, endpoints });
      return endpoints;
    },
    async oneOf(tenant, endpoint) {
      const { record, disabled } = await store.endpoint({ tenant, endpoint });
      if (record === undefined) throw new EndpointMissingError({ endpoint });
      if (disabled !== undefined) {
        throw new EndpointDisabledError({ endpoint, reason: disabled.reason });
      }
      return [[endpoint, readRecord(record)]];
    },
    async store({ tenant, id: message, type, body }, targets, purpose) {
      const records = new Map(targets);
      // A test does not wait in an ordered line.
      const inLine = purpose === "send" ? targets.filter(([, { ordered }]) => ordered) : [];
      const { isNew, endpoints, isSent, ordered, copy } = await store.storeMessage({
        tenant,
        message,
        copy: randomUUID(),
        type,
        body,
        endpoints: [...records.keys()],
        ordered: inLine.map(([id]) => id),
        keepMs: keptMs(targets),
      });
      // If the message was already stored, its jobs may be missing, because the process that stored
      // the message may have died before.
      if (isSent) return { isNew, endpoints };
      const jobs = endpoints
        .filter((endpoint) => !ordered.includes(endpoint))
        .map((endpoint) => {
          const born = records.get(endpoint)?.born;
          const first = { attempt: 1, series: FIRST_SERIES };
          return { tenant, endpoint, message, copy, purpose, ...first, born };
        });
      const scheduleOf = (endpoint: string): readonly number[] =>
        records.get(endpoint)?.scheduleMs ?? parts.scheduleMs;
      await storeFirst(queue, jobs, ({ endpoint }) => jittered(scheduleOf(endpoint)[0]!));
      for (const endpoint of ordered) {
        const step = await store.lineStep({ tenant, endpoint });
        const most = records.get(endpoint)?.batch ?? 1;
        if (step !== undefined) await storeStep(queue, { tenant, endpoint, step, most });
      }
      const isThere = await store.noteSent({ tenant, message, copy });
      // The message was expunged before its jobs were stored, so remove the jobs.
      if (!isThere) await Promise.all(jobs.map((job) => queue.remove(jobIdOf(job))));
      return { isNew, endpoints };
    },
  };
}

/** Selects the targets that subscribe to an event. */
export function wanting(targets: Targets, type: string, data: unknown): Targets {
  return targets.filter(
    ([, { types, filter }]) => matchesType(types, type) && matchesFilter(filter, data),
  );
}

function enabledOf({ records, disabled }: StoredEndpoints): Targets {
  return [...records]
    .filter(([id]) => !disabled.has(id))
    .map(([id, text]) => [id, readRecord(text)] as const);
}
