#!/usr/bin/env node
/** `sluice`: the command line of operators. Each command opens a sluice on the Redis that it is given, and closes it. */
import process from "node:process";
import { onUnreadable } from "./io.ts";
import { run } from "./program.ts";

process.stdout.on("error", onUnreadable);
process.stderr.on("error", onUnreadable);

process.exitCode = await run(process.argv.slice(2));
