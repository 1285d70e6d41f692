import { afterEach } from "vitest";
import { createSluice, type Sluice, type SluiceOptions, type StoreEvent } from "sluice";
import { startRedis } from "../redis/local-redis.ts";
import type { LocalRedis } from "../redis/private-redis.ts";
import { startTcpProxy, type TcpProxy } from "../servers/tcp-proxy.ts";

/** A Redis of the test's own behind a proxy, and replicas that reach it through that. */
interface Outage {
  readonly redis: LocalRedis;
  readonly proxy: TcpProxy;
  /** Another replica. */
  open(options?: SluiceOptions): Replica;
  /** From now on Redis takes connections and commands, and never answers. */
  begin(): void;
  /** Redis answers again; what was sent meanwhile is lost. */
  end(): void;
}

interface Replica {
  readonly sluice: Sluice;
  readonly events: readonly StoreEvent[];
  /** What it logged, with its level. */
  readonly logged: readonly string[];
}

export interface Outages {
  readonly start: () => Promise<Outage>;
}

/** Outages of one test; all that they hold ends after it. */
export function outages(): Outages {
  let endings: (() => Promise<void>)[] = [];
  afterEach(async () => {
    const all = endings.toReversed();
    endings = [];
    for (const end of all) await end();
  });

  function openAt(port: number, options: SluiceOptions = {}): Replica {
    const logged: string[] = [];
    const events: StoreEvent[] = [];
    const log = (level: string) => (_facts: object, message: string) =>
      void logged.push(`${level}: ${message}`);
    const logger = { warn: log("warn"), error: log("error") };
    const redis = `redis://:@127.0.0.1:${port}`;
    const sluice = createSluice({ redis, storeTimeoutMs: 300, logger, ...options });
    sluice.on("store", (event) => events.push(event));
    endings.push(() => sluice.close());
    return { sluice, events, logged };
  }

  return {
    async start() {
      const redis = await startRedis({ fresh: true });
      endings.push(() => redis.stop());
      const proxy = await startTcpProxy(Number(new URL(redis.url).port));
      endings.push(() => proxy.close());
      return {
        redis,
        proxy,
        open: (options) => openAt(proxy.port, options),
        begin: () => proxy.set("lose replies"),
        end() {
          proxy.set("pass");
          proxy.cut();
        },
      };
    },
  };
}
