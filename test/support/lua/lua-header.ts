import type { ArgName } from "../../../src/stores/redis/scripts/shape.ts";

/**
 * Compares the arguments in the header of a script, by name and in order, with those that its shapes send.
 *
 * @returns what the header has to list; undefined if it does.
 */
export function missingArguments(text: string, argNames: readonly ArgName[]): string | undefined {
  const listed = /^ {2}ARGV {2}([^]*?)^ {2}Reply /m.exec(text)?.[1] ?? "";
  const entries = [...listed.matchAll(/(?:^|\s{2,})(\[\d+…?\] \w+(?:, \w+)*)(?=:|\n|\s{2,})/g)];
  const wanted = argNames.map(headerOf).join("  ");
  return entries.map(([, entry]) => entry).join("  ") === wanted ? undefined : wanted || "none";
}

/** Arguments that repeat have an ellipsis. */
function headerOf(name: ArgName, index: number): string {
  const names = typeof name === "string" ? [name] : name.each;
  const inLua = names.map((each) =>
    each.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
  );
  return `[${index + 1}${typeof name === "string" ? "" : "…"}] ${inLua.join(", ")}`;
}
