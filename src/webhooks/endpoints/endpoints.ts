import { randomUUID } from "node:crypto";
import { assertArgumentCount } from "../../core/input/arguments.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import { readWhoAndWhy, type WhoAndWhy } from "../../core/input/who-and-why.ts";
import type { QueueChange } from "../../core/stores/insight/changes.ts";
import type { ChangeLog } from "../../core/stores/insight/change-log.ts";
import { EndpointMissingError } from "../errors.ts";
import type { Disabled, EndpointName } from "../../stores/redis/scripts/webhooks/webhooks.ts";
import type { WebhookStore } from "../../stores/redis/webhooks/store.ts";
import type { SecretsOf } from "../options.ts";
import { limitsKeyOf, type TenantOf } from "../names.ts";
import {
  createKeyPair,
  createSecret,
  readSecret,
  type SignatureStyle,
} from "../signing/secrets.ts";
import {
  assertWithin,
  createPutReader,
  readDisable,
  readEndpointRef,
  readList,
  readRotate,
  readSetLimits,
  type Ceiling,
  type DisableEndpoint,
  type EndpointRef,
  type ListEndpoints,
  type PutEndpoint,
  type RotateSecret,
  type SetLimits,
} from "./endpoint-options.ts";
import {
  endpointOf,
  readRecord,
  secretsInForce,
  type Endpoint,
  type EndpointRecord,
} from "./record.ts";
import { createEndpointChanges, type UndoEndpointChange } from "./endpoint-changes.ts";
import { limitsText } from "./tenants.ts";
import type { TargetRules } from "../guard/target.ts";
import type { Sealing } from "./sealing.ts";

/** The stored endpoint, and the secret that was created for it. The secret is not shown again. */
export interface PutResult {
  readonly endpoint: Endpoint;
  /**
   * Undefined if the caller passed a secret, a secret already existed, or secrets are stored
   * outside Redis.
   */
  readonly secret: string | undefined;
}

/**
 * The endpoints of tenants. A tenant cannot see other tenants' endpoints. All methods reject with
 * StoreUnavailableError when Redis is unreachable.
 *
 * Changes apply in all processes from their next message or attempt. New limits apply within a
 * second. The second argument records who made a change and why. `sluice.changes()` lists these
 * changes. It does not list endpoints that were disabled after failures; `endpoint.disabled` and
 * the events report these.
 */
export interface Endpoints {
  /**
   * Stores an endpoint, or replaces the endpoint with this id. A replaced endpoint keeps its log
   * and its disabled state. It keeps its secret unless a new secret is passed.
   *
   * @throws {@link InvalidOptionError} when an option can never work, or is above the sender's
   * `ceiling`.
   */
  put(endpoint: PutEndpoint, byHand?: WhoAndWhy): Promise<PutResult>;
  /** Returns the endpoint. Returns undefined if the tenant has no endpoint with this id. */
  get(endpoint: EndpointRef): Promise<Endpoint | undefined>;
  /**
   * Returns a page of the tenant's endpoints, sorted by id. To read all pages, continue with
   * `cursor` until it is undefined.
   */
  list(options?: ListEndpoints): Promise<EndpointsPage>;
  /**
   * Removes an endpoint with its secret and log, and drops its pending messages. Resolves with
   * false if the endpoint did not exist.
   */
  remove(endpoint: EndpointRef, byHand?: WhoAndWhy): Promise<boolean>;
  /**
   * Stops sending to an endpoint. Its pending messages fail, and can be recovered. Resolves with
   * false if the endpoint was already disabled.
   *
   * @throws {@link EndpointMissingError} when the tenant has no such endpoint. The methods below
   * throw this error too.
   */
  disable(endpoint: DisableEndpoint, byHand?: WhoAndWhy): Promise<boolean>;
  /**
   * Resumes sending to an endpoint. Also ends a pause, and resets the failure count. Resolves with
   * false if the endpoint was not disabled.
   */
  enable(endpoint: EndpointRef, byHand?: WhoAndWhy): Promise<boolean>;
  /**
   * Sets only the limits of an endpoint. Omitted limits return to the sender's `perEndpoint`.
   *
   * @throws {@link InvalidOptionError} when the limits can never work, or are above the sender's
   * `ceiling`.
   */
  setLimits(limits: SetLimits, byHand?: WhoAndWhy): Promise<Endpoint>;
  /**
   * Signs with a new secret, and for `graceMs` also with the old secret. Returns the new secret. If
   * the key that decrypts the old secret is lost, `graceMs` must be 0.
   */
  rotateSecret(options: RotateSecret, byHand?: WhoAndWhy): Promise<string>;
  /**
   * Undoes one `disable` or `enable`, and returns that change. Without an id, undoes the last
   * change of any endpoint of the sender. Returns undefined if the log has no such change.
   *
   * @throws {@link CannotUndoError} when the change is of another kind, such as a `put`, or its
   * endpoint has a later change.
   */
  undo(options?: UndoEndpointChange): Promise<QueueChange | undefined>;
}

export interface EndpointsPage {
  readonly endpoints: readonly Endpoint[];
  /** The cursor of the next page; undefined on the last page. */
  readonly cursor: string | undefined;
}

export interface EndpointsParts {
  /** The name of the sender. */
  readonly name: string;
  readonly log: ChangeLog;
  readonly store: WebhookStore;
  readonly tenantOf: TenantOf;
  readonly isSingle: boolean;
  readonly targets: TargetRules;
  readonly ceiling: Ceiling;
  /**
   * Undefined without encryption keys. That is possible only if all secrets are stored outside
   * Redis.
   */
  readonly sealing: Sealing | undefined;
  /** Undefined if secrets are stored in Redis. */
  readonly secretsOf: SecretsOf | undefined;
  /** Ends a pause that the endpoint's replies caused. */
  readonly resume: (name: EndpointName, batch: number) => Promise<unknown>;
}

/** The most endpoints of a tenant. Filtering more endpoints for each event would take too long. */
const MOST_OF_TENANT = 10_000;
const DAY_MS = 86_400_000;
/** The most characters of a reason that an endpoint shows. */
const MOST_OF_WHY = 200;

export function createEndpoints(parts: EndpointsParts): Endpoints {
  const { store, tenantOf, isSingle, targets, ceiling, sealing, secretsOf, resume } = parts;
  const changes = createEndpointChanges({ sender: parts.name, log: parts.log, read, setDisabled });
  const readPut = createPutReader(targets);

  function nameOf(where: string, { tenant, id }: EndpointRef): EndpointName {
    return { tenant: tenantOf(where, tenant), endpoint: id };
  }

  function readRef(where: string, given: unknown): EndpointName {
    return nameOf(where, readEndpointRef(where, given));
  }

  /**
   * Reads an endpoint and stores its new state. Tries again if another process changed the endpoint
   * in between.
   */
  async function change(
    where: string,
    name: EndpointName,
    make: (before: EndpointRecord | undefined) => EndpointRecord,
  ): Promise<Endpoint> {
    for (;;) {
      const { record: before, disabled } = await store.endpoint(name);
      const record = make(before === undefined ? undefined : readRecord(before));
      const stored = await store.put({
        ...name,
        record: JSON.stringify(record),
        before,
        most: MOST_OF_TENANT,
        key: limitsKeyOf(name),
        limits: limitsText(record),
      });
      if (stored === "stored") return shownOf(name, record, disabled);
      if (stored === "too-many") {
        const remedy = `the tenant has ${MOST_OF_TENANT} endpoints; remove some first`;
        throw new InvalidOptionError({ where, option: "id", value: name.endpoint, remedy });
      }
    }
  }

  function assertKeptHere(where: string, option: string, remedy: string): void {
    if (secretsOf === undefined) return;
    throw new InvalidOptionError({ where, option, value: "***", remedy });
  }

  /** Encrypts a value. Throws if the sender has no encryption key. */
  function seal(where: string, option: string, text: string, name: EndpointName): string {
    if (sealing !== undefined) return sealing.seal(text, name);
    const remedy =
      "remove this option, or set keys on the sender, which encrypt the value in Redis";
    throw new InvalidOptionError({ where, option, value: "***", remedy });
  }

  const endpoints: Endpoints = {
    async put(given, byHand) {
      const where = "endpoints.put()";
      const said = readWhoAndWhy(where, byHand);
      const wanted = readPut(where, given);
      const name = nameOf(where, wanted);
      const { tenant: _tenant, id: _id, secret, headers, certificate, ...settings } = wanted;
      assertWithin(where, settings, ceiling);
      const style = settings.signature ?? "standard";
      if (secret !== undefined) {
        assertKeptHere(where, "secret", "leave it out: secretsOf returns it");
        assertSigns(where, secret, style);
      }
      const kept = {
        headers: headers && {
          names: Object.keys(headers),
          sealed: seal(where, "headers", JSON.stringify(headers), name),
        },
        certificate: certificate && seal(where, "certificate", JSON.stringify(certificate), name),
      };
      const own = secret === undefined ? undefined : seal(where, "secret", secret, name);
      let made: string | undefined;
      const make = (before: EndpointRecord | undefined): EndpointRecord => {
        const nowMs = Date.now();
        const had = before?.secrets ?? [];
        if (before !== undefined && own === undefined) assertStillSigns(where, before, style, name);
        const hasSecret = own !== undefined || secretsOf !== undefined || had.length > 0;
        // Create the secret only once, even if a change by another process forces a repeat.
        made = hasSecret ? undefined : (made ?? createSecret());
        const fresh = own ?? (made && seal(where, "secret", made, name));
        return {
          born: before?.born ?? randomUUID(),
          ...settings,
          ...kept,
          secrets: fresh === undefined ? had : [{ sealed: fresh }],
          createdAtMs: before?.createdAtMs ?? nowMs,
          changedAtMs: nowMs,
        };
      };
      const endpoint = await changes.settings("put", name, said, () => change(where, name, make));
      return { endpoint, secret: made };
    },
    async get(given) {
      const name = readRef("endpoints.get()", given);
      return read(name);
    },
    async list(given) {
      const where = "endpoints.list()";
      const { tenant: named, limit = 100, cursor = "" } = readList(where, given);
      const tenant = tenantOf(where, named);
      const ids = await store.ids(tenant, cursor, limit);
      const found = await Promise.all(ids.map((endpoint) => read({ tenant, endpoint })));
      return {
        endpoints: found.filter((each) => each !== undefined),
        cursor: ids.length < limit ? undefined : ids.at(-1),
      };
    },
    async remove(given, byHand) {
      const where = "endpoints.remove()";
      const name = readRef(where, given);
      const said = readWhoAndWhy(where, byHand);
      return changes.removal(name, said, () => store.remove({ ...name, key: limitsKeyOf(name) }));
    },
    async disable(given, byHand) {
      const where = "endpoints.disable()";
      const said = readWhoAndWhy(where, byHand);
      const { reason, why, ...ref } = readDisable(where, given);
      const byWhom = said.by === undefined ? "by hand" : `by ${said.by}`;
      const known = (reason || why || (said.reason ?? byWhom)).slice(0, MOST_OF_WHY);
      return changes.switched(nameOf(where, ref), known, said);
    },
    async enable(given, byHand) {
      const where = "endpoints.enable()";
      const name = readRef(where, given);
      return changes.switched(name, undefined, readWhoAndWhy(where, byHand));
    },
    undo: (given) => changes.undo(given),
    async setLimits(given, byHand) {
      const where = "endpoints.setLimits()";
      const said = readWhoAndWhy(where, byHand);
      const { rate, concurrency, ...ref } = readSetLimits(where, given);
      assertWithin(where, { rate, concurrency }, ceiling);
      const name = nameOf(where, ref);
      const make = (before: EndpointRecord | undefined): EndpointRecord => {
        if (before === undefined) throw new EndpointMissingError(name);
        return { ...before, rate, concurrency, changedAtMs: Date.now() };
      };
      return changes.settings("setLimits", name, said, () => change(where, name, make));
    },
    async rotateSecret(given, byHand) {
      const where = "endpoints.rotateSecret()";
      const said = readWhoAndWhy(where, byHand);
      const { secret, graceMs = DAY_MS, ...ref } = readRotate(where, given);
      const name = nameOf(where, ref);
      assertKeptHere(where, "secretsOf", "let it return the new secret, and the old one");
      let fresh = secret;
      const make = (before: EndpointRecord | undefined): EndpointRecord => {
        if (before === undefined) throw new EndpointMissingError(name);
        const style = before.signature ?? "standard";
        if (secret !== undefined) assertSigns(where, secret, style);
        fresh ??= freshLike(before, name);
        const nowMs = Date.now();
        const untilMs = nowMs + graceMs;
        // Drop the oldest secrets if rotations overlap so often that more than `MOST_SECRETS`
        // secrets would sign.
        const older = graceMs === 0 ? [] : secretsInForce(before, nowMs).slice(0, MOST_SECRETS - 1);
        assertReadable(where, older, graceMs, name);
        const rotated = older.map((each) => ({
          ...each,
          untilMs: Math.min(each.untilMs ?? Infinity, untilMs),
        }));
        const secrets = [{ sealed: seal(where, "secret", fresh, name) }, ...rotated];
        return { ...before, secrets, changedAtMs: nowMs };
      };
      await changes.settings("rotateSecret", name, said, () => change(where, name, make));
      return fresh!;
    },
  };

  async function read(name: EndpointName): Promise<Endpoint | undefined> {
    const { record, disabled } = await store.endpoint(name);
    return record === undefined ? undefined : shownOf(name, readRecord(record), disabled);
  }

  async function shownOf(
    name: EndpointName,
    record: EndpointRecord,
    disabled: Disabled | undefined,
  ): Promise<Endpoint> {
    const waiting = record.ordered === true ? await store.lineLength(name) : undefined;
    return endpointOf(record, { name, isSingle, disabled, waiting });
  }

  /** Disables an endpoint for the reason `why`, or enables it if that is undefined. */
  async function setDisabled(name: EndpointName, why: string | undefined): Promise<boolean> {
    const changed = await store.setDisabled({ ...name, why });
    if (changed === undefined) throw new EndpointMissingError(name);
    if (why !== undefined) return changed;
    const { batch = 1 } = (await read(name)) ?? {};
    await resume(name, batch);
    return changed;
  }

  /** Rejects a style that the stored secret does not fit, because nothing could be sent then. */
  function assertStillSigns(
    where: string,
    before: EndpointRecord,
    style: SignatureStyle,
    name: EndpointName,
  ): void {
    if (sealing === undefined || style === (before.signature ?? "standard")) return;
    for (const { sealed } of secretsInForce(before, Date.now())) {
      const text = tryOpen(sealing, sealed, name);
      try {
        if (text !== undefined) assertSigns(where, text, style);
      } catch (cause) {
        const remedy = "give a secret too: the one that it has is none of this style";
        throw new InvalidOptionError({ where, option: "signature", value: style, remedy, cause });
      }
    }
  }

  /**
   * Rejects the change if one of the secrets cannot be read, because nothing could be sent then.
   */
  function assertReadable(
    where: string,
    secrets: EndpointRecord["secrets"],
    graceMs: number,
    name: EndpointName,
  ): void {
    if (secrets.every(({ sealed }) => tryOpen(sealing!, sealed, name) !== undefined)) return;
    const remedy =
      "set graceMs to 0, or add the key that encrypted the old secret to the sender's keys";
    throw new InvalidOptionError({ where, option: "graceMs", value: graceMs, remedy });
  }

  /**
   * Creates a new secret of the same kind: an ed25519 pair or a shared secret. If the old secret
   * cannot be read, creates a shared secret.
   */
  function freshLike(before: EndpointRecord, name: EndpointName): string {
    const [newest] = before.secrets;
    const old = newest && tryOpen(sealing!, newest.sealed, name);
    return old?.trim().startsWith("whsk_") === true ? createKeyPair().secret : createSecret();
  }

  return assertArgumentCount(endpoints);
}

/** Decrypts a text. Returns undefined if the key that encrypted the text is lost. */
function tryOpen(sealing: Sealing, sealed: string, name: EndpointName): string | undefined {
  try {
    return sealing.open(sealed, name);
  } catch {
    return undefined;
  }
}

/** The most secrets that sign at the same time. */
const MOST_SECRETS = 4;

function assertSigns(where: string, secret: string, style: SignatureStyle): void {
  const { half } = readSecret(where, "secret", secret, style);
  if (half !== "public") return;
  const remedy = "a whpk_ key only verifies; give its whsk_ secret";
  throw new InvalidOptionError({ where, option: "secret", value: "whpk_***", remedy });
}
