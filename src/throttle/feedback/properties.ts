/** Reads a property of any value; undefined if there is none, or if its getter throws. */
export function readProperty(value: unknown, name: string): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  try {
    return (value as Readonly<Record<string, unknown>>)[name];
  } catch {
    return undefined;
  }
}

/** Reads an object's own property; undefined if only its class has it, or if reading it throws. */
export function readOwnProperty(value: object, name: string): unknown {
  try {
    return Object.hasOwn(value, name) ? readProperty(value, name) : undefined;
  } catch {
    return undefined;
  }
}
