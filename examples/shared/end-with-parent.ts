/** Loaded into each child process: ends it when its parent is gone, however the parent ended. */
import process from "node:process";

process.once("disconnect", () => process.exit(1));
// The parent may have ended while this child was loading.
if (!process.connected) process.exit(1);
// A child with nothing left to do may end before its parent.
process.channel?.unref();
