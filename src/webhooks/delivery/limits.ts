import { reasonOf } from "../../core/describe.ts";
import { firstOfText, decodeKey, encodeKey, type Key } from "../../core/key-path.ts";
import type { Logger } from "../../core/logger.ts";
import { layered } from "../../core/input/options.ts";
import type { LimitsOptions } from "../../core/policy/limit-makers.ts";
import type { RuledPolicy } from "../../core/stores/insight/rules.ts";
import type { EndpointsRules, EndpointLimits } from "../../core/policy/endpoint-rules.ts";
import type { WebhookStore } from "../../stores/redis/webhooks/store.ts";
import { digestOfTenant } from "../names.ts";
import { withinCeiling, type Ceiling } from "../endpoints/endpoint-options.ts";

/** This process's copy of the own limits of tenants and endpoints. */
export interface OwnLimits {
  /** Returns the limits for each level of a key: first the tenant, then the endpoint. */
  readonly perKey: readonly ((path: readonly string[]) => LimitsOptions)[];
  /** The sender's rules, as they were last read. */
  readonly rules: EndpointsRules;
  /**
   * Loads the limits, and resolves once they are known. Then keeps them up to date and notifies the
   * listeners until `stop()`.
   */
  follow(logger: Logger, listeners: LimitsListeners): Promise<void>;
  stop(): void;
}

interface LimitsListeners {
  /** Called with the encoded keys whose limits have changed. */
  readonly onChange: (keys: readonly string[]) => void;
  /** Called when a process without the sender's code asks to end the pause of a key. */
  readonly onWake: (key: Key) => Promise<unknown>;
  /** Called when the limits of any key may have changed. */
  readonly onRules: () => void;
}

/**
 * The limits from all three sources. Own limits override the rules, and the rules override the
 * code. The ceiling caps the own limits.
 */
export interface LevelLimits {
  readonly code: LimitsOptions;
  readonly rules: EndpointLimits;
  readonly own: EndpointLimits;
}

/** The limits in the sender's code. Empty in a process without that code. */
export interface SenderLimits {
  readonly perTenant: LimitsOptions;
  readonly perEndpoint: LimitsOptions;
  /** The highest limits that an endpoint may set. */
  readonly ceiling: Ceiling;
}

/** Returns the limits of a tenant, or of one of its endpoints. */
export function levelLimits(
  path: readonly string[],
  code: SenderLimits,
  { rules, own }: { readonly rules: EndpointsRules; readonly own: EndpointLimits },
): LevelLimits {
  const [tenant, endpoint] = path as readonly [string, string?];
  const ofTenant = ownValue(rules.tenants, tenant) ?? {};
  if (endpoint === undefined) {
    const { rate, concurrency } = ofTenant;
    const ruled = layered(rules.perTenant, { rate, concurrency }) ?? {};
    return { code: code.perTenant, rules: ruled, own };
  }
  const ofEndpoint = ownValue(ofTenant.endpoints, endpoint);
  const ceiling = layered<EndpointLimits>(code.ceiling, rules.ceiling, ofTenant.ceiling) ?? {};
  return {
    code: code.perEndpoint,
    rules: layered(rules.perEndpoint, ofTenant.perEndpoint, ofEndpoint) ?? {},
    own: withinCeiling(own, ceiling),
  };
}

/** Reads only own properties, because a tenant may be called `constructor`. */
function ownValue<T>(table: Readonly<Record<string, T>> | undefined, name: string): T | undefined {
  return table !== undefined && Object.hasOwn(table, name) ? table[name] : undefined;
}

export function rulesOf(ruled: RuledPolicy | undefined): EndpointsRules {
  return ruled === undefined ? {} : (JSON.parse(ruled.text) as EndpointsRules);
}

/**
 * Replaces removed limits until the process ends. Pending calls notice that a limit has changed,
 * but not that a limit was removed.
 */
const LIFTED: LimitsOptions = { rate: "1000000/s" };
/**
 * How often new limits are read. New limits must apply within a second, and limits from a rules
 * file must first be read and stored.
 */
const LOOK_EVERY_MS = 500;

export function createOwnLimits(
  store: Pick<WebhookStore, "limitsSince"> & {
    /** Reads the sender's rules. */
    readonly readRules: () => Promise<RuledPolicy | undefined>;
  },
  code: SenderLimits,
): OwnLimits {
  const levels = [code.perTenant, code.perEndpoint];
  /** The own limits by encoded key. Keys that once had limits have an empty entry. */
  const own = new Map<string, EndpointLimits>();
  let ruled: RuledPolicy | undefined;
  let rules: EndpointsRules = {};
  /** True if any rules have applied since the process began. */
  let hadRules = false;
  /** The version of the own limits that was last read; -1 before the first read. */
  let version = -1;
  /** The keys whose pause must still be ended. */
  const keysToWake = new Set<string>();
  let waking: Promise<void> | undefined;
  let isStopped = false;
  let timer: NodeJS.Timeout | undefined;
  let following: Promise<void> | undefined;

  function limitsOf(path: readonly string[]): LimitsOptions {
    const text = encodeKey(path);
    const given = own.get(text);
    const { code: ofCode, ...limits } = levelLimits(path, code, { rules, own: given ?? {} });
    const all = { ...ofCode, ...limits.rules, ...limits.own };
    const wasLimited = given !== undefined || hadRules;
    return wasLimited && Object.keys(all).length === 0 ? LIFTED : all;
  }

  /**
   * Reads the rules again, and returns true if the rules changed. Keeps the old rules if reading
   * fails, because the rules may be on another server.
   */
  async function readRules(): Promise<boolean> {
    const found = await store.readRules().catch(() => ruled);
    if (found?.text === ruled?.text) return false;
    ruled = found;
    rules = rulesOf(found);
    hadRules = true;
    return true;
  }

  /** Removes the limits of expunged tenants. Returns their encoded keys. */
  function forget(digests: readonly string[] = []): string[] {
    if (digests.length === 0) return [];
    const ended = [...own.keys()].filter((text) =>
      digests.includes(digestOfTenant(firstOfText(text))),
    );
    for (const text of ended) own.set(text, {});
    return ended;
  }

  async function look({ onChange, onRules }: LimitsListeners): Promise<void> {
    const isFirst = version < 0;
    const [changed, areOthers] = await Promise.all([
      store.limitsSince(Math.max(0, version)),
      readRules(),
    ]);
    if (areOthers && !isFirst) onRules();
    if (changed.version < version) own.clear();
    const ended = forget(changed.forgotten);
    for (const [text, limits] of changed.limits) {
      own.set(text, limits === undefined ? {} : (JSON.parse(limits) as EndpointLimits));
    }
    version = changed.version;
    if (isFirst) return;
    const keys = [...ended, ...changed.limits.keys()];
    if (keys.length > 0) onChange(keys);
    for (const text of changed.woken) keysToWake.add(text);
  }

  /**
   * Wakes the keys one after another. Each key takes several requests, so other new limits do not
   * wait for this function.
   */
  async function wakeAll({ onWake }: LimitsListeners): Promise<void> {
    for (const text of keysToWake) {
      if (isStopped) return;
      await onWake(decodeKey(text));
      keysToWake.delete(text);
    }
  }

  return {
    perKey: levels.map(() => limitsOf),
    get rules() {
      return rules;
    },
    follow(logger, listeners) {
      return (following ??= new Promise((resolve) => {
        const again = (): void => {
          if (!isStopped) timer = setTimeout(lookOnce, LOOK_EVERY_MS);
        };
        const warn = (what: string) => (error: unknown) => {
          const reason = reasonOf(error);
          if (!isStopped) logger.warn({ reason }, `${what}: ${reason}`);
        };
        const lookOnce = (): void => {
          look(listeners)
            .then(() => {
              resolve();
              waking ??= wakeAll(listeners)
                .catch(warn("An endpoint that was enabled could not be woken, and is tried again"))
                .finally(() => (waking = undefined));
            })
            .catch(warn("The limits of endpoints could not be read"))
            .finally(again);
        };
        lookOnce();
      }));
    },
    stop() {
      isStopped = true;
      clearTimeout(timer);
    },
  };
}
