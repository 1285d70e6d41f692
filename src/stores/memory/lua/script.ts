import * as runtime from "./runtime.ts";
import {
  packDoubles,
  tableOf,
  type Commands,
  type Table,
  type Value,
  type Values,
} from "./runtime.ts";

/** A translated script, bound to the runtime. */
export type TranslatedScript = (keys: Table, args: Table, commands: Commands) => Values;
export type MakeScript = (given: typeof runtime) => TranslatedScript;

/**
 * Runs a script and converts its reply as Redis does. With `isPacked`, strings are returned as a
 * `Buffer`.
 */
export function runTranslated(
  script: TranslatedScript,
  request: {
    readonly keys: readonly string[];
    readonly args: readonly Argument[];
    readonly isPacked: boolean;
    readonly commands: Commands;
  },
): unknown {
  const { keys, args, isPacked, commands } = request;
  const values = script(tableOf(keys.map(bytesOf)), tableOf(args.map(bytesOf)), commands);
  return replyOf(Array.isArray(values) ? values[0] : values, isPacked);
}

/** An argument as it is given. A list of numbers is packed as doubles. */
type Argument = string | number | Buffer | readonly number[];

const NOT_ASCII = /[\u0080-\uffff]/;

/** Encodes an argument with one character for each byte. */
function bytesOf(given: Argument): string {
  if (typeof given === "number") return String(given);
  if (typeof given === "object")
    return Array.isArray(given) ? packDoubles(given) : (given as Buffer).toString("latin1");
  return NOT_ASCII.test(given) ? Buffer.from(given).toString("latin1") : given;
}

export function textOf(bytes: string): string {
  return NOT_ASCII.test(bytes) ? Buffer.from(bytes, "latin1").toString() : bytes;
}

/**
 * Converts a reply as Redis does. A list ends before its first nil, and a number loses its
 * fraction.
 */
function replyOf(value: Value, isPacked: boolean): unknown {
  switch (typeof value) {
    case "string":
      return isPacked ? Buffer.from(value, "latin1") : textOf(value);
    case "number":
      return Math.trunc(value);
    case "object": {
      if (value["$err"] !== undefined) throw new Error(value["$err"] as string);
      if (value["$ok"] !== undefined) return value["$ok"];
      const end = value.a.indexOf(undefined);
      const items = end < 0 ? value.a : value.a.slice(0, end);
      return items.map((each) => replyOf(each, isPacked));
    }
    default:
      return value === true ? 1 : null;
  }
}

/**
 * Returns a function that finds scripts by name. A script is bound to the runtime when it is first
 * requested.
 */
export function openScripts(
  find: (name: string) => MakeScript | undefined,
): (name: string) => TranslatedScript {
  const made = new Map<string, TranslatedScript>();
  return (name) => {
    const found = made.get(name);
    if (found !== undefined) return found;
    const make = find(name);
    if (make === undefined)
      throw new Error(`there is no translation of the script ${name}; run the build`);
    const script = make(runtime);
    made.set(name, script);
    return script;
  };
}
