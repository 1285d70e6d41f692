import { reasonOf } from "../../core/describe.ts";
import { firstOfText, keyOfText, textOfKey, type Key } from "../../core/key-path.ts";
import type { Logger } from "../../core/logger.ts";
import type { LimitsOptions } from "../../core/policy/limit-makers.ts";
import type { RuledPolicy } from "../../core/stores/insight/rules.ts";
import type { EndpointsRules, EndpointLimits } from "../../core/policy/endpoint-rules.ts";
import type { WebhookStore } from "../../core/stores/webhooks/store.ts";
import { digestOfTenant } from "../names.ts";
import { withinCeiling, type Ceiling } from "../endpoints/endpoint-options.ts";

/** The limits that tenants and endpoints have of their own, as far as this process knows them. */
export interface OwnLimits {
  /** The limits by level: of tenants, and of their endpoints. */
  readonly perKey: readonly ((path: readonly string[]) => LimitsOptions)[];
  /** Resolves once the limits are known; they are kept up to date until `stop()`, and listeners hear of each change. */
  follow(logger: Logger, listeners: LimitsListeners): Promise<void>;
  stop(): void;
}

interface LimitsListeners {
  /** The limits of some keys have changed; called with their texts. */
  readonly onChange: (keys: readonly string[]) => void;
  /** What a key was made to wait for is to end: a process without the sender's code asked for it. */
  readonly onWake: (key: Key) => Promise<unknown>;
  /** The limits of any key may be others. */
  readonly onRules: () => void;
}

/** Limits that stand one over another: of the code, of the rules, and of one's own, as far as the ceiling. */
export interface LevelLimits {
  readonly code: LimitsOptions;
  readonly rules: EndpointLimits;
  readonly own: EndpointLimits;
}

/** What the code of a sender says for all; nothing where a process has not that code. */
export interface SenderLimits {
  readonly perTenant: LimitsOptions;
  readonly perEndpoint: LimitsOptions;
  /** The most that an endpoint may have. */
  readonly ceiling: Ceiling;
}

/** The limits of a tenant, or of one of its endpoints. */
export function levelLimits(
  path: readonly string[],
  code: SenderLimits,
  { rules, own }: { readonly rules: EndpointsRules; readonly own: EndpointLimits },
): LevelLimits {
  const [tenant, endpoint] = path as readonly [string, string?];
  const ofTenant = ownValue(rules.tenants, tenant) ?? {};
  if (endpoint === undefined) {
    const { rate, concurrency } = ofTenant;
    return { code: code.perTenant, rules: over(rules.perTenant, { rate, concurrency }), own };
  }
  const ofEndpoint = ownValue(ofTenant.endpoints, endpoint);
  const ceiling = over(code.ceiling, rules.ceiling, ofTenant.ceiling);
  return {
    code: code.perEndpoint,
    rules: over(rules.perEndpoint, ofTenant.perEndpoint, ofEndpoint),
    own: withinCeiling(own, ceiling),
  };
}

/** The later ones go before the earlier ones. */
function over(...all: readonly (EndpointLimits | undefined)[]): EndpointLimits {
  const given = all.flatMap((limits) => Object.entries(limits ?? {}));
  return Object.fromEntries(given.filter(([, value]) => value !== undefined));
}

/** A tenant may be called `constructor`. */
function ownValue<T>(table: Readonly<Record<string, T>> | undefined, name: string): T | undefined {
  return table !== undefined && Object.hasOwn(table, name) ? table[name] : undefined;
}

export function rulesOf(ruled: RuledPolicy | undefined): EndpointsRules {
  return ruled === undefined ? {} : (JSON.parse(ruled.text) as EndpointsRules);
}

/**
 * Stands for no limits where there were some, until the process ends: what waits for them hears of a change of limits, and
 * not of their end.
 */
const LIFTED: LimitsOptions = { rate: "1000000/s" };
/** New limits hold within a second, also those of a rules file, which is to be read and noted before. */
const LOOK_EVERY_MS = 500;

export function createOwnLimits(
  store: Pick<WebhookStore, "limitsSince"> & {
    /** What rules say of the sender. */
    readonly readRules: () => Promise<RuledPolicy | undefined>;
  },
  code: SenderLimits,
): OwnLimits {
  const levels = [code.perTenant, code.perEndpoint];
  /** By the texts of paths; nothing for those that had limits before. */
  const own = new Map<string, EndpointLimits>();
  let ruled: RuledPolicy | undefined;
  let rules: EndpointsRules = {};
  /** Whether rules have said anything since the process began. */
  let hadRules = false;
  /** None was read yet. */
  let version = -1;
  /** Keys that are to be woken still. */
  const asleep = new Set<string>();
  let waking: Promise<void> | undefined;
  let isStopped = false;
  let timer: NodeJS.Timeout | undefined;
  let following: Promise<void> | undefined;

  function limitsOf(path: readonly string[]): LimitsOptions {
    const text = textOfKey(path);
    const given = own.get(text);
    const { code: ofCode, ...limits } = levelLimits(path, code, { rules, own: given ?? {} });
    const all = { ...ofCode, ...limits.rules, ...limits.own };
    const wasLimited = given !== undefined || hadRules;
    return wasLimited && Object.keys(all).length === 0 ? LIFTED : all;
  }

  /** Whether other rules hold. What cannot be read is as it was: it is on a server of its own, maybe. */
  async function readRules(): Promise<boolean> {
    const found = await store.readRules().catch(() => ruled);
    if (found?.text === ruled?.text) return false;
    ruled = found;
    rules = rulesOf(found);
    hadRules = true;
    return true;
  }

  /** Ends the limits of expunged tenants; the texts of their keys. */
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
    for (const text of changed.woken) asleep.add(text);
  }

  /** Each key takes some requests; new limits of others do not wait for them. */
  async function wakeAll({ onWake }: LimitsListeners): Promise<void> {
    for (const text of asleep) {
      if (isStopped) return;
      await onWake(keyOfText(text));
      asleep.delete(text);
    }
  }

  return {
    perKey: levels.map(() => limitsOf),
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
