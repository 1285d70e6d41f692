/** Creates command-line options for the fields of operations. */
import { Option } from "commander";
import * as z from "zod";
import { InvalidOptionError } from "../core/errors.ts";
import { OPTION_FORMS, type OptionForm } from "../operations/fields.ts";
import type { AnyOperation } from "../operations/operation.ts";
import { parseDuration } from "./io.ts";

/** Returns the fields of an operation for which the command has options. */
export function fieldsOf({ input, cli }: AnyOperation): [name: string, field: z.ZodType][] {
  const hidden = new Set([...argsOf(cli), ...(cli.hidden ?? [])]);
  return Object.entries((input as z.ZodObject).shape as Record<string, z.ZodType>).filter(
    ([name]) => !hidden.has(name),
  );
}

export function argsOf({ args, command }: AnyOperation["cli"]): readonly string[] {
  return args ?? [...command.matchAll(/[<[](\w+)/g)].map(([, name]) => name!);
}

export function optionsOf(called: AnyOperation): Option[] {
  const { cli } = called;
  const fields = fieldsOf(called).map(([name, field]) => {
    const { description = "", deprecated } = field.meta() ?? {};
    const { flags, help = inLowerCase(description).replace(/\.$/, "") } = formOf(name, field);
    const option = new Option(flags, help);
    if (deprecated === true) option.hideHelp();
    const usual = cli.defaults?.[name] ?? usualOf(field);
    return usual === undefined || usual === false
      ? option
      : option.default(`${usual as string | number}`);
  });
  const own = (cli.options ?? []).map(([flags, help]) => new Option(flags, help));
  const yes = cli.confirm === undefined ? [] : [new Option("--yes", `needed: ${cli.confirm}`)];
  return [...fields, ...own, ...yes];
}

/** Removes the wrappers that make a schema optional. */
function innerOf(field: z.ZodType): z.ZodType {
  return field instanceof z.ZodOptional || field instanceof z.ZodDefault
    ? innerOf(field.unwrap() as z.ZodType)
    : field;
}

function usualOf(field: z.ZodType): unknown {
  return field instanceof z.ZodDefault ? field.def.defaultValue : undefined;
}

function formOf(name: string, field: z.ZodType): Pick<OptionForm, "flags"> & Partial<OptionForm> {
  const known = OPTION_FORMS.get(field);
  if (known !== undefined) return known;
  const inner = innerOf(field);
  if (inner instanceof z.ZodBoolean) return { flags: `--${name}` };
  const place = PLACES[name] ?? (inner instanceof z.ZodNumber ? "count" : name);
  return { flags: `--${name} <${place}>` };
}

/** The placeholders of options in the help, for options whose placeholder differs from the name. */
const PLACES: Readonly<Record<string, string>> = {
  generation: "number",
  reason: "text",
  why: "text",
  by: "name",
  sender: "name",
  message: "id",
};

/** Reads the value of a field from the command's options. */
export function readOption(
  name: string,
  field: z.ZodType,
  values: Readonly<Record<string, unknown>>,
): unknown {
  const { flags, reads } = formOf(name, field);
  const [flag = ""] = flags.split(" ");
  const given = values[new Option(flags).attributeName()] as string | string[] | undefined;
  if (given === undefined) return undefined;
  const text = typeof given === "string" ? given : "";
  if (reads === "duration") return parseDuration(flag, text);
  if (reads === "ago") return Date.now() - parseDuration(flag, text);
  if (reads === "names" && Array.isArray(given)) return given.length === 1 ? given[0] : given;
  if (innerOf(field) instanceof z.ZodNumber) {
    return name === "generation" ? Number(text) : countOf(flag, text);
  }
  return given;
}

/** @throws {@link InvalidOptionError} when the text is not a whole number of at least 1. */
export function countOf(option: string, text: string): number {
  const count = Number(text);
  if (Number.isInteger(count) && count >= 1) return count;
  const remedy = "give a whole number from 1";
  throw new InvalidOptionError({ where: "sluice", option, value: text, remedy });
}

export function inLowerCase(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}
