/** Returns a property of any value. Undefined if the property is missing or its getter throws. */
export function readProperty(value: unknown, name: string): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  try {
    return (value as Readonly<Record<string, unknown>>)[name];
  } catch {
    return undefined;
  }
}

/** Returns an object's own property. Undefined if only the object's class has the property, or if reading it throws. */
export function readOwnProperty(value: object, name: string): unknown {
  try {
    return Object.hasOwn(value, name) ? readProperty(value, name) : undefined;
  } catch {
    return undefined;
  }
}
