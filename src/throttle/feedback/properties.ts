/** A property of any value; undefined when there is none, or when its getter throws. */
export function readProperty(value: unknown, name: string): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  try {
    return (value as Readonly<Record<string, unknown>>)[name];
  } catch {
    return undefined;
  }
}

/** A property that is an object's own; undefined where only its class has it, or where asking throws. */
export function readOwnProperty(value: object, name: string): unknown {
  try {
    return Object.hasOwn(value, name) ? readProperty(value, name) : undefined;
  } catch {
    return undefined;
  }
}
