#!/usr/bin/env node
/** Runs the command line. Each command connects to Redis, and closes its connection at the end. */
import process from "node:process";
import { endWith, onUnreadable } from "./io.ts";
import { run } from "./program.ts";

process.stdout.on("error", onUnreadable);
process.stderr.on("error", onUnreadable);

endWith(await run(process.argv.slice(2)));
