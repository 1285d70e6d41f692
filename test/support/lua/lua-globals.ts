import luaparse from "luaparse";

/** The use of a name that the source never declares. */
export interface LuaGlobal {
  readonly name: string;
  /** Counted from 1, in the text that was parsed. */
  readonly line: number;
}

/** What a script may use of Redis and of Lua 5.1, JSON for what BullMQ keeps as such; no clock, no loading of code. */
const KNOWN_GLOBALS: ReadonlySet<string> = new Set(
  `redis cjson KEYS ARGV math string table
   struct ipairs pairs rawget select setmetatable tonumber tostring type unpack`.split(/\s+/),
);

interface ParsedIdentifier {
  readonly name: string;
  readonly loc: { readonly start: { readonly line: number } };
}

/** The first use of each name that is neither declared nor known: a typo, or a local used above its declaration. */
export function undeclaredGlobals(source: string): readonly LuaGlobal[] {
  const options = { luaVersion: "5.1", scope: true, locations: true } as const;
  // `scope: true` adds `globals`, which the types leave out.
  const chunk = luaparse.parse(source, options) as unknown as {
    readonly globals: readonly ParsedIdentifier[];
  };
  return chunk.globals
    .filter(({ name }) => !KNOWN_GLOBALS.has(name))
    .map(({ name, loc }) => ({ name, line: loc.start.line }));
}
