/** What servers have noted in Redis of requests that may come again: see `core/stores/insight/requests.ts`. */
import type { Cluster, Redis } from "ioredis";
import type {
  NotedRequest,
  RequestNoted,
  RequestNotes,
} from "../../core/stores/insight/requests.ts";
import type { Requests } from "../requests/requests.ts";
import { requestNoteKey } from "../scripts/keys.ts";

export function createRequestNotes(
  redis: Redis | Cluster,
  prefix: string,
  requests: Pick<Requests, "send">,
): RequestNotes {
  const keyOf = ({ queue, name }: NotedRequest): string => requestNoteKey(prefix, queue, name);

  async function note(request: NotedRequest, keptMs: number): Promise<RequestNoted> {
    const key = keyOf(request);
    const isFirst = (await redis.set(key, request.asked, "PX", keptMs, "NX")) === "OK";
    if (isFirst) return "first";
    const asked = await redis.get(key);
    if (asked !== null && asked !== request.asked) return "other";
    const isKept = asked !== null && (await redis.pexpire(key, keptMs)) === 1;
    // It may have ended between the commands.
    return isKept ? "same" : note(request, keptMs);
  }

  return {
    noteRequest: (request, keptMs) => requests.send(request.queue, () => note(request, keptMs)),
    forgetRequest: (request) =>
      requests.send(request.queue, async () => {
        const key = keyOf(request);
        if ((await redis.get(key)) === request.asked) await redis.del(key);
      }),
  };
}
