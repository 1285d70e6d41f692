import { register } from "node:module";
import process from "node:process";
import { pathToFileURL } from "node:url";

const ROOT = new URL("../../../", import.meta.url).href;
const CHILD = "src/queue/worker/handlers/sandbox-child.ts";
const built = pathToFileURL(`${process.env.SLUICE_BUILT_ROOT}/`).href;

/** Replaces TypeScript files of this repository, and the package itself, by what is built of them. */
const hooks = `
  export async function resolve(name, context, next) {
    if (name === "sluice") return next("${built}dist/index.js", context);
    if (name === "${ROOT}${CHILD}") return next("${built}dist/sandbox-child.js", context);
    if (!name.startsWith("${ROOT}") || !name.endsWith(".ts")) return next(name, context);
    return next("${built}" + name.slice(${ROOT.length}, -2) + "js", context);
  }`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);
