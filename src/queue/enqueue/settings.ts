/**
 * What of a queue can change while it is open: what its code says, and over that, value by value, what the rules in force
 * say, and over those what was set by hand. A process asks for both as it uses the queue, and not while it is idle.
 */
import { leavesOf, reasonOf, sayEndless } from "../../core/describe.ts";
import type {
  JobDefaults,
  KeepDone,
  KeepFailed,
  MaxBacklog,
  QueueRules,
} from "../../core/input/queue-settings.ts";
import { namesOfText } from "../../core/key-path.ts";
import type { Logger } from "../../core/logger.ts";
import type { RuledPolicy } from "../../core/stores/insight/rules.ts";
import type { SteeredSettings } from "../../stores/redis/scripts/queue/steering.ts";
import type { KeptFailed, KeptJobs } from "../../stores/redis/scripts/queue/jobs.ts";
import type { SetBy } from "../../throttle/bucket/facts/status.ts";
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
  /** What is known is to be asked for again: it was changed here. */
  forget(): void;
}

/** Asks for what goes before the code. */
export interface ReadSettings {
  readonly rules: () => Promise<RuledPolicy | undefined>;
  readonly byHand: () => Promise<SteeredSettings>;
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

/** The values, each where it is set. */
function valuesOf({ maxBacklog, keepDone, keepFailed, defaults }: SettingsGiven): SettingsGiven {
  const most = typeof maxBacklog === "number" ? { all: maxBacklog } : maxBacklog;
  return { maxBacklog: most, keepDone, keepFailed, defaults };
}

/** The values of the one, and where it has none those of the other. */
function over<T extends object>(one: T | undefined, other: T | undefined): T | undefined {
  return one === undefined ? other : ({ ...other, ...one } as T);
}

export function createSettings({
  code: given,
  weightsOf,
  read,
  logger,
}: {
  readonly code: SettingsGiven;
  readonly weightsOf: WeightsOf;
  /** What rules say of the queue, as it is kept, and what was set by hand; undefined where neither can. */
  readonly read: ReadSettings | undefined;
  readonly logger: Pick<Logger, "warn">;
}): QueueSettingsLive {
  const code = valuesOf(given);
  let ruled: Ruled | undefined;
  let held: readonly Held[] = [];
  let now = merge();
  let readAtMs = -Infinity;
  let reading: Promise<void> | undefined;
  /** How often what was known has been forgotten. */
  let epoch = 0;

  function merge(): SettingsInForce {
    const [rules, byHand] = [ruled?.rules ?? {}, handRulesOf(held)];
    const [own, hand] = [valuesOf(rules), valuesOf(byHand)];
    const most = over(
      own.maxBacklog as MaxBacklog | undefined,
      code.maxBacklog as MaxBacklog | undefined,
    );
    return {
      most: over(hand.maxBacklog as MaxBacklog | undefined, most),
      keepDone: withKeptDefaults(over(hand.keepDone, over(own.keepDone, code.keepDone))),
      keepFailed: over(hand.keepFailed, over(own.keepFailed, code.keepFailed)),
      defaults: over(hand.defaults, over(own.defaults, code.defaults)),
      weightsOf: weightsUnder(byHand.weights, weightsUnder(rules.weights, weightsOf)),
    };
  }

  async function readNow(ask: ReadSettings): Promise<void> {
    // What is not answered holds on as it is known. Whoever uses the queue hears of a Redis that does not answer.
    const epochOfRead = epoch;
    try {
      const [rules, byHand] = await Promise.allSettled([ask.rules(), ask.byHand()]);
      // It may have been read before a change that was made here since.
      if (epoch !== epochOfRead) return;
      const before = ruled?.text + textOf(held);
      if (rules.status === "fulfilled") ruled = readRuled(rules.value);
      if (byHand.status === "fulfilled") held = byHand.value.settings.map(readHeld);
      if (ruled?.text + textOf(held) !== before) now = merge();
      readAtMs = performance.now();
    } finally {
      if (epoch === epochOfRead) reading = undefined;
    }
  }

  /** Each text is parsed, and refused, once. */
  function readRuled(value: RuledPolicy | undefined): Ruled | undefined {
    if (value === undefined) return undefined;
    const isKnown = ruled?.text === value.text;
    return { ...value, rules: isKnown ? ruled!.rules : parse<QueueRules>("rules", value.text) };
  }

  function readHeld(setting: SteeredSettings["settings"][number]): Held {
    const { name, text } = setting;
    const known = held.find((each) => each.name === name && each.text === text);
    return { ...setting, said: known ? known.said : parse<Said>(`${name} by hand`, text) };
  }

  /** Undefined if it cannot be read: then it is as if it was not there. */
  function parse<Of>(what: string, text: string): Of | undefined {
    try {
      const read: unknown = JSON.parse(text);
      if (typeof read === "object" && read !== null) return read as Of;
      throw new SyntaxError("it is no object");
    } catch (error) {
      const reason = reasonOf(error);
      logger.warn({ settings: what, reason }, `Settings of a queue (${what}) cannot be read.`);
      return undefined;
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
      const [byRules, byHand] = [ruled?.rules ?? {}, handRulesOf(held)].map(leavesBy);
      const { most, keepDone, keepFailed, defaults } = now;
      const ofAll = leavesOf({ maxBacklog: most, keepDone, keepFailed, defaults });
      const all = new Map([...ofAll, ...byRules!, ...byHand!]);
      return {
        settings: [...all].map(([name, value]): QueueSetting => {
          const read = { name, value: value as QueueSetting["value"] };
          if (byHand!.has(name)) {
            return { ...read, setBy: "override", override: setByOf(held, name) };
          }
          return { ...read, setBy: byRules!.has(name) ? "rules" : "code" };
        }),
        rulesVersion: ruled?.rules && ruled.version,
      };
    },
    forget() {
      epoch++;
      readAtMs = -Infinity;
      reading = undefined;
    },
  };
}

function leavesBy(rules: QueueRules): ReadonlyMap<string, unknown> {
  return new Map(leavesOf({ ...valuesOf(rules), weights: rules.weights }));
}

/** What rules say, parsed; undefined where it cannot be read. */
interface Ruled extends RuledPolicy {
  readonly rules: QueueRules | undefined;
}

/** A setting that was set by hand, and what is kept of it, parsed. */
type Held = SteeredSettings["settings"][number] & { readonly said: Said | undefined };

interface Said {
  readonly value: unknown;
  readonly by: string;
  readonly reason?: string | undefined;
}

function handRulesOf(held: readonly Held[]): QueueRules {
  const read = held.filter(({ said }) => said !== undefined);
  return Object.fromEntries(read.map(({ name, said }) => [name, said!.value])) as QueueRules;
}

function textOf(held: readonly Held[]): string {
  return held.map(({ name, text }) => `${name} ${text}`).join("|");
}

/** Who set a value by hand: that of its setting. */
function setByOf(held: readonly Held[], leaf: string): SetBy {
  const { said, atMs, forMs } = held.find(({ name }) => name === leaf.split(".", 1)[0])!;
  const { by, reason } = said!;
  return sayEndless({ by, reason, atMs, endsInMs: forMs });
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
