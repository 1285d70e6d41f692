import type { HandSetting, SteeredSettings } from "../../../../core/stores/queue/steering.ts";
import type { PauseSeen, Steered } from "../../../../core/stores/queue/steering.ts";
import { baseOf, type QueueName } from "../keys.ts";
import { endless, laneKeys, readPausedKeys } from "./lanes.ts";
import { defineScript, type Script } from "../script.ts";

type PausesSet = QueueName & PauseSeen & { readonly since?: number | undefined };

/** For 0 ms it ends the pause. */
export const pausesSet: Script<PausesSet, Steered & { readonly hasPutAway: boolean }> =
  defineScript({
    name: "queue/steer/pauses-set",
    keys: (input) => laneKeys(input, ["paused"]),
    args: (input) => {
      const { key = "", forMs, since = "" } = input;
      return [baseOf(input), key, forMs === Infinity ? -1 : forMs, since];
    },
    decode: (reply) => ({ ...readSteered(reply), hasPutAway: (reply as number[])[2] === 1 }),
  });

/** The queue's own pause first, then those of keys by when they end. */
export const pausesLook: Script<QueueName, PauseSeen[]> = defineScript({
  name: "queue/steer/pauses-look",
  keys: (input) => [`${baseOf(input)}meta`, `${baseOf(input)}lanes:paused`],
  args: () => [],
  decode: (reply) => {
    const [ofQueue, ...ofKeys] = reply as readonly [number, ...(string | number)[]];
    const pause = { key: undefined, forMs: endless(ofQueue) };
    return [...(ofQueue === 0 ? [] : [pause]), ...readPausedKeys(ofKeys)];
  },
});

type SettingsSet = QueueName & {
  readonly settings: readonly HandSetting[];
  readonly since: number | undefined;
};

export const settingsSet: Script<SettingsSet, Steered> = defineScript({
  name: "queue/steer/settings-set",
  keys: (input) => settingsKeys(input),
  args: ({ settings, since = "" }) => [
    since,
    ...settings.flatMap(({ name, forMs, text = "" }) => [
      name,
      forMs === Infinity ? "" : forMs,
      text,
    ]),
  ],
  decode: readSteered,
});

export const settingsLook: Script<QueueName, SteeredSettings> = defineScript({
  name: "queue/steer/settings-look",
  keys: (input) => settingsKeys(input),
  args: () => [],
  decode: (reply) => {
    const [generation, nowMs, ...pairs] = reply as readonly [number, number, ...string[]];
    const settings = Array.from({ length: pairs.length / 2 }, (_, at) => {
      const [name, record] = pairs.slice(at * 2, at * 2 + 2) as [string, string];
      const [atMs = "", untilMs = ""] = record.split("|", 2);
      const text = record.slice(`${atMs}|${untilMs}|`.length);
      const forMs = untilMs === "" ? Infinity : Number(untilMs) - nowMs;
      return { name, text, atMs: Number(atMs), forMs };
    });
    return { generation, settings };
  },
});

function settingsKeys(input: QueueName): readonly string[] {
  return ["lanes:state", "lanes:settings"].map((name) => baseOf(input) + name);
}

function readSteered(reply: unknown): Steered {
  const [isDone, generation] = reply as readonly [number, number];
  return { isStale: isDone === 0, generation };
}
