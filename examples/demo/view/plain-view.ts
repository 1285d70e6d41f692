import type { DemoArguments } from "../arguments.ts";
import { count } from "../verdict.ts";
import type { View } from "./snapshot.ts";

/** Creates a view that prints one line a second, for logs and pipes. */
export function createPlainView(print: (line: string) => void, { rate }: DemoArguments): View {
  let lastSecond = -1;
  return {
    show({ elapsedMs, backlog, callsInLastSecond, delivered, worstSecond, refused }) {
      const second = Math.floor(elapsedMs / 1_000);
      if (second === lastSecond) return;
      lastSecond = second;
      const columns = [
        `${second} s`.padStart(6),
        `backlog ${count(backlog)}`.padEnd(15),
        `calls/s ${count(callsInLastSecond)} of ${count(rate)}`.padEnd(18),
        `delivered ${count(delivered)}`.padEnd(17),
        `worst second ${count(worstSecond)}`.padEnd(18),
        `refused ${count(refused)}`,
      ];
      print(columns.join("  "));
    },
    close: () => undefined,
  };
}
