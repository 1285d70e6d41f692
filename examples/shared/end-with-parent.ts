/** Loaded into each child of the demo: it ends when the demo is gone, however that ended. */
import process from "node:process";

process.once("disconnect", () => process.exit(1));
// The demo may have gone while this child was still being loaded.
if (!process.connected) process.exit(1);
// A child that has nothing left to do may end before its parent.
process.channel?.unref();
