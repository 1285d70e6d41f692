/** How many replicas draw from a bucket: the most that were seen in the last minute of draws. */
export interface ReplicasSeen {
  /** 0: none was ever seen. */
  readonly most: number;
  see(alive: number): void;
}

const WINDOW_MS = 30_000;

export function createReplicasSeen(): ReplicasSeen {
  let windowEndsMs = -Infinity;
  let most = 0;
  let mostBefore = 0;

  return {
    get most() {
      return Math.max(most, mostBefore);
    },
    see(alive) {
      const nowMs = performance.now();
      if (nowMs >= windowEndsMs) {
        mostBefore = most;
        most = 0;
        windowEndsMs = nowMs + WINDOW_MS;
      }
      most = Math.max(most, alive);
    },
  };
}
