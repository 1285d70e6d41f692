import { existsSync, readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

/** Functions that read a request or a stored state, or write a reply or a state: only the scripts do that. */
const OF_REDIS =
  /^(?:read|load|save|pack|unpack|bind|copy|open|write|flush)_|^(?:encode|reply_of|are_all_resets_off|is_quiet|or_minus_one|slot_of|rank_of|count_parts)$/;
/** Functions that the scripts create at first use; and parts that TypeScript has in place, as iterators or as objects. */
const OF_LUA =
  /^for_|^(?:add_need|add_statuses_for|fit_gate|main_opens_us|next_follower|others_of|size_class|sizes_of|turn_like)$/;

const core = textsIn("src/core", ".ts");
const lua = textsIn("lua", ".lua");
const names = new Set([...core.values()].join("\n").match(/\w+/g));
const twins = ["draw", "state", "limits"].flatMap((folder) =>
  [...lua].filter(([path]) => path.startsWith(`lua/lib/${folder}/`)),
);

describe("twins in TypeScript and Lua", () => {
  it("refer to each other by paths that exist", () => {
    const named = [...core, ...lua].flatMap(([, text]) =>
      [...text.matchAll(/Twin of[^.]*?((?:src\/core|lua)\/[\w/-]+\.(?:ts|lua))/g)].map(
        ([, path]) => path!,
      ),
    );

    expect(named.filter((path) => !existsSync(path))).toEqual([]);
    expect(named.length).toBeGreaterThan(30);
  });

  it("have the same names on both sides", () => {
    const alone = twins.flatMap(([path, text]) =>
      [...text.matchAll(/^\s*local function (\w+)/gm)]
        .map(([, name]) => name!)
        .filter((name) => !OF_REDIS.test(name) && !OF_LUA.test(name) && !names.has(camelCase(name)))
        .map((name) => `${path}: ${name}`),
    );

    expect(alone).toEqual([]);
  });
});

function textsIn(folder: string, end: string): ReadonlyMap<string, string> {
  return new Map(
    readdirSync(folder, { recursive: true, encoding: "utf8" })
      .filter((name) => name.endsWith(end))
      .map((name) => [`${folder}/${name}`, readFileSync(`${folder}/${name}`, "utf8")]),
  );
}

function camelCase(name: string): string {
  return name.replaceAll(/_(\w)/g, (_match, letter: string) => letter.toUpperCase());
}
