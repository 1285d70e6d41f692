/** Whether methods may lie below: not in what the language or the platform has made, such as an array, a Map or a URL. */
export function isNamespace(value: object): boolean {
  // A class may name its kind itself; what is built in has the kind that it names.
  return Object.prototype.toString.call(value) === "[object Object]" || !isBuiltIn(value);
}

export function isReference(value: unknown): value is object {
  return (typeof value === "object" && value !== null) || typeof value === "function";
}

function isBuiltIn(value: object): boolean {
  let at = Reflect.getPrototypeOf(value);
  while (at !== null) {
    const above = Reflect.getPrototypeOf(at);
    // The last one is that of all objects.
    if (
      above !== null &&
      isBuiltInClass(Reflect.getOwnPropertyDescriptor(at, "constructor")?.value)
    )
      return true;
    at = above;
  }
  return false;
}

/** Those of the language are native, those of the platform are global. Clients are made of EventTarget, too. */
function isBuiltInClass(made: unknown): boolean {
  if (typeof made !== "function" || made === EventTarget) return false;
  const isNative = Function.prototype.toString.call(made).endsWith("{ [native code] }");
  return isNative || Reflect.get(globalThis, made.name) === made;
}
