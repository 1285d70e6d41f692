/** Loaded into each child process: ends it when its parent is gone, however the parent ended. */
import process from "node:process";

/** Not by `process.exit`: while modules are loading, it waits for the thread that loads them, which waits for this one. */
function end(): void {
  process.kill(process.pid, "SIGKILL");
}

process.once("disconnect", end);
// The parent may have ended while this child was loading.
if (!process.connected) end();
// A child with nothing left to do may end before its parent.
process.channel?.unref();
