import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/** Collects all that nobody can reach any more, at once. */
export function collectGarbage(): void {
  setFlagsFromString("--expose-gc");
  (runInNewContext("gc") as () => void)();
}
