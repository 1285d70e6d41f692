#!/usr/bin/env node
/** `sluice`: the command line of operators. Each command opens a sluice on the Redis that it is given, and closes it. */
import process from "node:process";
import { run } from "./program.ts";

process.exitCode = await run(process.argv.slice(2));
