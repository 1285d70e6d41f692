/**
 * What of a queue can change while it is open: what its code says, and over that, value by value, what the rules in force
 * say. A process asks for the rules as it uses the queue, and not while it is idle.
 */
import { leavesOf } from "../../core/describe.ts";
import type {
  JobDefaults,
  KeepDone,
  KeepFailed,
  MaxBacklog,
  QueueRules,
} from "../../core/input/queue-settings.ts";
import { namesOfText } from "../../core/key-path.ts";
import type { RuledPolicy } from "../../core/stores/insight/rules.ts";
import type { KeptFailed, KeptJobs } from "../../core/stores/queue/store.ts";
import type { QueueSetting, SettingsStatus } from "../forecast/status.ts";
import type { WeightsOf } from "../lanes/weights.ts";
import { withKeptDefaults } from "../options.ts";

/** What holds now. */
interface SettingsInForce {
  readonly most: MaxBacklog | undefined;
  readonly keepDone: KeptJobs;
  readonly keepFailed: KeptFailed | undefined;
  readonly defaults: JobDefaults | undefined;
  readonly weightsOf: WeightsOf;
}

export interface QueueSettingsLive {
  /** As far as it is known. */
  readonly now: SettingsInForce;
  /** The same, half a second old at most unless Redis is slow. */
  current(): Promise<SettingsInForce>;
  status(): Promise<SettingsStatus>;
}

export interface SettingsGiven {
  readonly maxBacklog?: number | MaxBacklog | undefined;
  readonly keepDone?: KeepDone | undefined;
  readonly keepFailed?: KeepFailed | undefined;
  readonly defaults?: JobDefaults | undefined;
}

/** How old what is known may be before it is asked for again … */
const FRESH_MS = 500;
/** … and how long a caller waits for the answer; then what is known goes on to hold. */
const MOST_WAIT_MS = 200;

/** The values, each where it is set: those of the rules go before those of the code. */
function valuesOf({ maxBacklog, keepDone, keepFailed, defaults }: SettingsGiven): SettingsGiven {
  const most = typeof maxBacklog === "number" ? { all: maxBacklog } : maxBacklog;
  return { maxBacklog: most, keepDone, keepFailed, defaults };
}

function over<T extends object>(rules: T | undefined, code: T | undefined): T | undefined {
  return rules === undefined ? code : ({ ...code, ...rules } as T);
}

export function createSettings({
  code: given,
  weightsOf,
  read,
}: {
  readonly code: SettingsGiven;
  readonly weightsOf: WeightsOf;
  /** What rules say of the queue, as it is kept; undefined where no rules can. */
  readonly read: (() => Promise<RuledPolicy | undefined>) | undefined;
}): QueueSettingsLive {
  const code = valuesOf(given);
  let ruled: RuledPolicy | undefined;
  let now = merge({});
  let readAtMs = -Infinity;
  let reading: Promise<void> | undefined;

  function merge(rules: QueueRules): SettingsInForce {
    const own = valuesOf(rules);
    return {
      most: over(own.maxBacklog as MaxBacklog | undefined, code.maxBacklog as MaxBacklog),
      keepDone: withKeptDefaults(over(own.keepDone, code.keepDone)),
      keepFailed: over(own.keepFailed, code.keepFailed),
      defaults: over(own.defaults, code.defaults),
      weightsOf: weightsUnder(rules.weights, weightsOf),
    };
  }

  async function readNow(ask: () => Promise<RuledPolicy | undefined>): Promise<void> {
    try {
      const found = await ask();
      if (found?.text !== ruled?.text) now = merge(rulesOf(found));
      ruled = found;
    } catch {
      // What is known holds on. Whoever uses the queue hears of a Redis that does not answer.
    } finally {
      readAtMs = performance.now();
      reading = undefined;
    }
  }

  async function refresh(): Promise<void> {
    if (read === undefined || performance.now() - readAtMs < FRESH_MS) return;
    reading ??= readNow(read);
    let timer: NodeJS.Timeout | undefined;
    const waited = new Promise<void>((resolve) => (timer = setTimeout(resolve, MOST_WAIT_MS)));
    await Promise.race([reading, waited]);
    clearTimeout(timer);
  }

  return {
    get now() {
      return now;
    },
    async current() {
      await refresh();
      return now;
    },
    async status() {
      await refresh();
      const rules = rulesOf(ruled);
      const byRules = new Map(leavesOf({ ...valuesOf(rules), weights: rules.weights }));
      const { most, keepDone, keepFailed, defaults } = now;
      const ofAll = leavesOf({ maxBacklog: most, keepDone, keepFailed, defaults });
      const all = new Map([...ofAll, ...byRules]) as ReadonlyMap<string, QueueSetting["value"]>;
      return {
        settings: [...all].map(([name, value]) => ({
          name,
          value,
          setBy: byRules.has(name) ? "rules" : "code",
        })),
        rulesVersion: ruled?.version,
      };
    },
  };
}

function rulesOf(ruled: RuledPolicy | undefined): QueueRules {
  return ruled === undefined ? {} : (JSON.parse(ruled.text) as QueueRules);
}

/** The weights of the names that the rules give, and of all others those of the code. */
function weightsUnder(given: QueueRules["weights"], code: WeightsOf): WeightsOf {
  if (given === undefined) return code;
  const levels = Array.isArray(given) ? given : [given];
  return (key) => {
    const weights = code(key);
    if (key === undefined || weights === undefined) return weights;
    return namesOfText(key).map((name, level) => {
      const table = levels[level] as Readonly<Record<string, number>> | null | undefined;
      const own = table && Object.hasOwn(table, name) ? table[name] : undefined;
      return own ?? weights[level] ?? 1;
    });
  };
}
