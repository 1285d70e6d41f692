/**
 * The queue settings that can change while the queue is open. Operators' overrides take precedence over the rules file,
 * and the rules file over the code. A process reads overrides and rules only while it uses the queue.
 */
import { listLeaves, reasonOf, withForever } from "../../core/describe.ts";
import {
  expandSettings,
  mergeSettings,
  type QueueRules,
  type QueueSettings,
  type SettingsInForce,
} from "../../core/input/queue-settings.ts";
import { namesOfText } from "../../core/key-path.ts";
import type { Logger } from "../../core/logger.ts";
import type { RuledPolicy } from "../../core/stores/insight/rules.ts";
import type { HandSettings } from "../../stores/redis/scripts/queue/steering.ts";
import type { SetBy } from "../../throttle/bucket/facts/status.ts";
import type { QueueSetting, SettingsStatus } from "../forecast/status.ts";
import type { WeightsOf } from "../lanes/lane-options.ts";

interface Current extends SettingsInForce {
  readonly weightsOf: WeightsOf;
}

export interface QueueSettingsLive {
  /** The latest settings that this process has read. */
  readonly now: Current;
  /**
   * Resolves with settings that are at most half a second old. If Redis is slow, resolves with the latest settings that
   * this process has read.
   */
  current(): Promise<Current>;
  status(): Promise<SettingsStatus>;
  /** Makes the next use read the settings again. Called when this process has changed them. */
  forget(): void;
}

/** Reads the settings that take precedence over the code. */
export interface ReadSettings {
  readonly rules: () => Promise<RuledPolicy | undefined>;
  readonly byHand: () => Promise<HandSettings>;
}

/** Settings older than this are read again. */
const FRESH_MS = 500;
/**
 * How long a caller waits for the reply. After that, the caller gets the latest settings that this process has read.
 */
const MOST_WAIT_MS = 200;

export function createSettings({
  code,
  weightsOf,
  read,
  logger,
}: {
  readonly code: QueueSettings;
  readonly weightsOf: WeightsOf;
  /** Undefined for queues that neither rules nor operators can change. */
  readonly read: ReadSettings | undefined;
  readonly logger: Pick<Logger, "warn">;
}): QueueSettingsLive {
  let ruled: Ruled | undefined;
  let held: readonly Held[] = [];
  let now = merge();
  let readAtMs = -Infinity;
  let reading: Promise<void> | undefined;
  /** The number of calls of `forget()`. */
  let epoch = 0;

  function merge(): Current {
    const [rules, byHand] = [ruled?.rules ?? {}, handRulesOf(held)];
    return {
      ...mergeSettings(code, rules, byHand),
      weightsOf: weightsUnder(byHand.weights, weightsUnder(rules.weights, weightsOf)),
    };
  }

  async function readNow(ask: ReadSettings): Promise<void> {
    // If Redis does not reply, the known settings stay active. The operation that needed the settings reports the
    // failure.
    const epochOfRead = epoch;
    try {
      const [rules, byHand] = await Promise.allSettled([ask.rules(), ask.byHand()]);
      // Ignores the reply if this process may have changed the settings after Redis read them.
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

  /** Parses the queue's rules. Parses each text only once, and logs each invalid text only once. */
  function readRuled(value: RuledPolicy | undefined): Ruled | undefined {
    if (value === undefined) return undefined;
    const isKnown = ruled?.text === value.text;
    return { ...value, rules: isKnown ? ruled!.rules : parse<QueueRules>("rules", value.text) };
  }

  function readHeld(setting: HandSettings["settings"][number]): Held {
    const { name, text } = setting;
    const known = held.find((each) => each.name === name && each.text === text);
    return { ...setting, said: known ? known.said : parse<Said>(`${name} by hand`, text) };
  }

  /**
   * Parses stored settings. If the text is not a JSON object, logs a warning and returns undefined, so that the text is
   * ignored.
   */
  function parse<Of>(what: string, text: string): Of | undefined {
    try {
      const read: unknown = JSON.parse(text);
      if (typeof read === "object" && read !== null) return read as Of;
      throw new SyntaxError("it is not an object");
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
      const { weightsOf: _code, ...settings } = now;
      const all = new Map([...listLeaves(settings), ...byRules!, ...byHand!]);
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
  return new Map(listLeaves(expandSettings(rules)));
}

interface Ruled extends RuledPolicy {
  /** The parsed text. Undefined if the text is invalid. */
  readonly rules: QueueRules | undefined;
}

/** An operator's override, as stored and as parsed. */
type Held = HandSettings["settings"][number] & { readonly said: Said | undefined };

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

/** Returns who set the override to which the setting named `leaf` belongs. */
function setByOf(held: readonly Held[], leaf: string): SetBy {
  const { said, atMs, forMs } = held.find(({ name }) => name === leaf.split(".", 1)[0])!;
  const { by, reason } = said!;
  return withForever({ by, reason, atMs, endsInMs: forMs });
}

/** Overrides the weights of some names. All other names keep the weights from the code. */
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
