#!/usr/bin/env node
/** `sluice`: the command line of operators. Each command opens a sluice on the Redis that it is given, and closes it. */
import process from "node:process";
import { run } from "./program.ts";

// Who reads may have seen enough, as `head` has.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
  process.exit();
});

process.exitCode = await run(process.argv.slice(2));
