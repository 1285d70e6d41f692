import { readdir } from "node:fs/promises";
import type { Script } from "../../../src/stores/redis/scripts/script.ts";

const FOLDER = new URL("../../../src/stores/redis/scripts/", import.meta.url);

/** The typed side of every script, whichever module exports it. */
export async function allScripts(): Promise<Script<object, unknown>[]> {
  const files = (await readdir(FOLDER, { recursive: true })).filter((file) => file.endsWith(".ts"));
  const modules = await Promise.all(files.map((file) => import(new URL(file, FOLDER).href)));
  const values = modules.flatMap((module: object) => Object.values(module));
  return values.filter((value): value is Script<object, unknown> => value?.sha !== undefined);
}
