/** Reads queue settings from the command line. */
import { InvalidOptionError } from "../core/errors.ts";
import { SETTING_NAMES } from "../core/input/queue-settings.ts";

/**
 * Reads queue settings by the names that `sluice queue` shows. `defaults.attempts=3` becomes `{
 * defaults: { attempts: 3 } }`. A value may be JSON: `weights=[{"acme":3},null]`.
 *
 * @throws {@link InvalidOptionError} when a setting has no value, is unknown, or appears twice.
 */
export function settingsOf(given: readonly string[]): Readonly<Record<string, unknown>> {
  // Create objects without a prototype, because a key may be called `__proto__`.
  const make = (): Record<string, unknown> => Object.create(null) as Record<string, unknown>;
  const settings = make();
  for (const text of given) {
    const [, path = "", said = ""] = /^([^=]+)=(.+)$/s.exec(text) ?? [];
    if (path === "") throw wrongSetting(text, "give a name and a value, such as maxBacklog=500");
    // Do not split the name of a key, because it may contain dots.
    const names = path.startsWith("weights.")
      ? ["weights", path.slice("weights.".length)]
      : path.split(".");
    if (!(SETTING_NAMES as readonly string[]).includes(names[0]!)) {
      throw wrongSetting(
        text,
        `the settings are ${SETTING_NAMES.join(", ")}; --for and --generation are separate options`,
      );
    }
    if (/^weights\.\d+\./.test(path)) {
      const remedy = `give weights by level, or of a key with such a name, as JSON: 'weights=[{"acme":3},null]'`;
      throw wrongSetting(text, remedy);
    }
    let at: unknown = settings;
    for (const name of names.slice(0, -1)) at = inside(at, text)[name] ??= make();
    const table = inside(at, text);
    const last = names.at(-1)!;
    if (last in table) throw wrongSetting(text, ONCE);
    table[last] = valueOf(said, text);
  }
  return settings;
}

const ONCE = "remove it: another --setting has the same name, or contains it";

function inside(value: unknown, text: string): Record<string, unknown> {
  // Only the objects that `settingsOf` creates have no prototype.
  if (typeof value === "object" && value !== null && Object.getPrototypeOf(value) === null) {
    return value as Record<string, unknown>;
  }
  throw wrongSetting(text, ONCE);
}

function valueOf(said: string, text: string): unknown {
  if (/^\s*[[{]/.test(said)) {
    try {
      return JSON.parse(said);
    } catch {
      throw wrongSetting(text, "it is not JSON; give a number, a word, or JSON");
    }
  }
  return said.trim() !== "" && Number.isFinite(Number(said)) ? Number(said) : said;
}

function wrongSetting(value: string, remedy: string): InvalidOptionError {
  return new InvalidOptionError({ where: "sluice set", option: "--setting", value, remedy });
}
