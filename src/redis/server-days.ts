import type { Cluster, Redis } from "ioredis";
import { hasDays, reckon, type Reckoned } from "../core/limits/calendar-windows.ts";

/** Calendar days as they lie about the server's now, whatever this process's clock says. */
export interface ServerDays {
  /** The same request, with its calendar days; most have none, and cost no question. */
  reckon<Request extends Reckoned>(request: Request): Promise<Request>;
  /** The server has told its time. */
  setServerUs(serverUs: number): void;
}

export function createServerDays(redis: Redis | Cluster): ServerDays {
  /** How far the server's clock runs ahead of this process's, once calendar days need to know it. */
  let aheadUs: number | undefined;

  async function askAheadUs(): Promise<number> {
    const [seconds, micros] = await redis.time();
    return Number(seconds) * 1_000_000 + Number(micros) - wallUs();
  }

  return {
    async reckon(request) {
      if (!hasDays(request)) return request;
      aheadUs ??= await askAheadUs();
      return reckon(request, wallUs() + aheadUs);
    },
    setServerUs(serverUs) {
      aheadUs = serverUs - wallUs();
    },
  };
}

function wallUs(): number {
  return Date.now() * 1_000;
}
