/**
 * Patches ioredis behind Sentinel so that it searches for the primary until the client is closed.
 *
 * Fault (ioredis 5.11.1): `SentinelConnector.disconnect()` ends a running search, and ioredis never
 * connects again. Two callers call it by mistake. One is the failover detector of the *last*
 * connection, which stays subscribed after that connection is lost. The other is
 * `disconnect(true)`, which only requests a new connection.
 * Upstream: https://github.com/redis/ioredis/issues/1362, fixed by
 * https://github.com/redis/ioredis/pull/2198 after 6.0.0. Remove `PatientConnector` with the first
 * release that has this fix. For `disconnect(true)` while connecting, BullMQ has an issue
 * (https://github.com/taskforcesh/bullmq/issues/4378); no issue of ioredis is known.
 */
import {
  SentinelConnector,
  type Cluster,
  type Redis,
  type SentinelConnectionOptions,
} from "ioredis";

/**
 * A Sentinel connector that stops the last connection's failover detector before it searches for
 * the next primary.
 */
export class PatientConnector extends SentinelConnector {
  // The parameter is `unknown`, because ioredis declares one constructor signature for connectors
  // of every kind.
  constructor(options: unknown) {
    super(options as SentinelConnectionOptions);
  }

  override connect(
    ...given: Parameters<SentinelConnector["connect"]>
  ): ReturnType<SentinelConnector["connect"]> {
    super.disconnect();
    return super.connect(...given);
  }
}

/**
 * Ignores `disconnect(true)` while a client behind Sentinel connects, because the search leads to a
 * new connection anyway.
 */
export function searchUntilClosed(client: Redis | Cluster): void {
  if (!("sentinels" in client.options) || !client.options.sentinels) return;
  const disconnect = client.disconnect.bind(client);
  client.disconnect = (reconnect) => {
    if (reconnect !== true || client.status !== "connecting") disconnect(reconnect);
  };
}
