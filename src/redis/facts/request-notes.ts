/** What servers have noted in Redis of requests that may come again: see `core/stores/insight/requests.ts`. */
import type { Cluster, Redis } from "ioredis";
import type { NotedRequest, RequestNotes } from "../../core/stores/insight/requests.ts";
import type { Requests } from "../requests/requests.ts";
import { requestNoteKey } from "../scripts/keys.ts";

export function createRequestNotes(
  redis: Redis | Cluster,
  prefix: string,
  requests: Pick<Requests, "send">,
): RequestNotes {
  const keyOf = ({ queue, name }: NotedRequest): string => requestNoteKey(prefix, queue, name);
  return {
    noteRequest: (request, keptMs) =>
      requests.send(request.queue, async () => {
        const key = keyOf(request);
        await redis.set(key, request.asked, "PX", keptMs, "NX");
        return (await redis.get(key)) ?? request.asked;
      }),
    forgetRequest: (request) =>
      requests.send(request.queue, async () => {
        const key = keyOf(request);
        if ((await redis.get(key)) === request.asked) await redis.del(key);
      }),
  };
}
