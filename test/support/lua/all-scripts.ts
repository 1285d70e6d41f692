import { readdir } from "node:fs/promises";
import type { Script } from "../../../src/stores/redis/scripts/script.ts";

const FOLDER = new URL("../../../src/stores/redis/scripts/", import.meta.url);

/** The typed side of every script, whichever module exports it, by itself or in a table. */
export async function allScripts(): Promise<Script<object, unknown>[]> {
  const files = (await readdir(FOLDER, { recursive: true })).filter((file) => file.endsWith(".ts"));
  const modules = await Promise.all(files.map((file) => import(new URL(file, FOLDER).href)));
  const values = modules.flatMap((module: object) => Object.values(module));
  const tables = values.filter((value) => typeof value === "object" && !isScript(value));
  return [...values, ...tables.flatMap((table: object) => Object.values(table))].filter(isScript);
}

function isScript(value: unknown): value is Script<object, unknown> {
  return typeof value === "object" && value !== null && "sha" in value;
}
