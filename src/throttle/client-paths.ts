import { types } from "node:util";
import { describeValue } from "../core/describe.ts";
import { InvalidOptionError } from "../core/errors.ts";
import { closest } from "../core/options.ts";
import { isReference } from "./namespace.ts";

/**
 * Follows a method's path from the client as far as plain properties lead: what only
 * a getter, a proxy or the future could tell is taken on trust.
 *
 * @throws {@link InvalidOptionError} when there is no property of a name on the path.
 */
export function assertPathLeads(where: string, client: object, option: string, path: string): void {
  const names = path.split(".");
  let at: unknown = client;
  for (const [index, name] of names.entries()) {
    if (name.startsWith("*") || !isReference(at) || (index > 0 && types.isProxy(at))) return;
    if (!(name in at)) {
      const before = names.slice(0, index);
      const remedy = `${before.join(".") || "the client"} has no ${describeValue(name)}; ${hintOf(at, before, name)}`;
      throw new InvalidOptionError({ where, option, value: path, remedy });
    }
    at = plainValueOf(at, name);
  }
}

function hintOf(at: object, before: readonly string[], name: string): string {
  const near = closest(name, namesOf(at));
  if (near === undefined) return "write the path from the client on";
  return `did you mean ${[...before, near].join(".")}?`;
}

/** Undefined of a getter: to call it might do something. */
function plainValueOf(target: object, name: string): unknown {
  for (let at: object | null = target; at !== null; at = Reflect.getPrototypeOf(at)) {
    const property = Reflect.getOwnPropertyDescriptor(at, name);
    if (property !== undefined) return property.value;
  }
  return undefined;
}

function namesOf(target: object): readonly string[] {
  const above = Reflect.getPrototypeOf(target);
  const isBuiltIn = above === null || above === Object.prototype || above === Function.prototype;
  const own = Reflect.ownKeys(target).filter((name) => typeof name === "string");
  return isBuiltIn ? own : [...own, ...namesOf(above)];
}
