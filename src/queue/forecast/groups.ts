import { headsOfText } from "../../core/key-path.ts";
import type { LanesSeen } from "../../core/stores/queue/store.ts";
import type { LaneGroup, LaneLoad } from "./drain.ts";
import type { Pace } from "./pace.ts";

/** Where the lane of a key takes its turns, how fast it may drain, and how long it and its heads are aside. */
export interface Groups {
  placeOf(
    key: string,
    lane?: { readonly weight: number; readonly asideMs: number },
  ): Pick<LaneLoad, "within" | "weight" | "mostPerMs" | "fromMs">;
}

/**
 * The heads of paths, each of which shares its turns and its limits among the lanes below it. The lane of a head's own jobs
 * is one of those.
 */
export function createGroups(
  heads: LanesSeen["heads"],
  { perMsOf }: Pick<Pace, "perMsOf">,
  heldMs: (key: string) => number,
): Groups {
  const seen = new Map(heads.map((head) => [head.key, head]));
  const groups = new Map<string, LaneGroup>();

  function groupOf(text: string, within: LaneGroup | undefined): LaneGroup {
    const known = groups.get(text);
    if (known !== undefined) return known;
    const group = { within, weight: seen.get(text)?.weight ?? 1, mostPerMs: perMsOf(text) };
    groups.set(text, group);
    return group;
  }

  return {
    placeOf(key, { weight, asideMs } = { weight: 1, asideMs: 0 }) {
      const path = headsOfText(key);
      const isHead = seen.has(key);
      const above = isHead ? path : path.slice(0, -1);
      const within = above.reduce<LaneGroup | undefined>(
        (outer, head) => groupOf(head, outer),
        undefined,
      );
      const waits = path.map((text) => seen.get(text)?.asideMs ?? 0);
      return {
        within,
        weight: isHead ? 1 : weight,
        mostPerMs: isHead ? Infinity : perMsOf(key),
        fromMs: Math.max(asideMs, heldMs(key), ...waits),
      };
    },
  };
}
