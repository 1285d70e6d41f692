/** Preloaded into each child process. Ends the child when its parent no longer runs, for whatever reason. */
import process from "node:process";

/**
 * Does not use `process.exit`. While modules are loading, `process.exit` waits for the thread that loads them, and
 * that thread waits for this one.
 */
function end(): void {
  process.kill(process.pid, "SIGKILL");
}

process.once("disconnect", end);
// Ends immediately if the parent has ended while this child was loading.
if (!process.connected) end();
// Lets a child that has finished its work exit before its parent.
process.channel?.unref();
