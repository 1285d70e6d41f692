import { withoutPasswords } from "./describe-value.ts";

const NAMES = /^(?:password|sentinelPassword|passphrase|secret|authorization|cookie|api[-_]?key)$/i;
const PRIVATE_KEY = /-----BEGIN [A-Z ]*PRIVATE KEY-----/;
const HIDDEN = "***";
const DEEPEST = 5;
/** So many values are looked at: errors about a job's data must not take longer the more there is of it. */
const MOST_LOOKED_AT = 1_000;

/**
 * What an error may keep of the value of an option: the value itself, or a copy without
 * passwords if there are some in it.
 */
export function withoutSecrets(option: string, value: unknown): unknown {
  const name = option.split(".").at(-1)!;
  return hide(name, value, { deep: 0, left: { count: MOST_LOOKED_AT } });
}

interface Bounds {
  readonly deep: number;
  readonly left: { count: number };
}

function hide(name: string, value: unknown, { deep, left }: Bounds): unknown {
  left.count -= 1;
  if (typeof value === "string") {
    const isHidden = NAMES.test(name) || PRIVATE_KEY.test(value);
    return isHidden ? HIDDEN : withoutPasswords(value);
  }
  if (typeof value !== "object" || value === null || deep > DEEPEST || left.count <= 0)
    return value;
  if (ArrayBuffer.isView(value)) return value;
  try {
    const entries = firstEntries(value, left.count);
    const hidden = entries.map(
      ([key, each]) => [key, hide(key, each, { deep: deep + 1, left })] as const,
    );
    if (hidden.every(([, each], index) => Object.is(each, entries[index]![1]))) return value;
    return Array.isArray(value) ? hidden.map(([, each]) => each) : Object.fromEntries(hidden);
  } catch {
    // A getter or a proxy that throws.
    return value;
  }
}

/** As `Object.entries`, which would list all of them first. */
function firstEntries(value: object, count: number): [string, unknown][] {
  const entries: [string, unknown][] = [];
  for (const key in value) {
    if (entries.length >= count) break;
    if (Object.hasOwn(value, key)) entries.push([key, value[key as keyof typeof value]]);
  }
  return entries;
}
