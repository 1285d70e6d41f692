/**
 * Patches of ioredis behind Sentinel: the search for the primary goes on until the client is closed.
 *
 * Fault (ioredis 5.11.1): `SentinelConnector.disconnect()` ends a search that is under way, and ioredis never connects
 * again. Two things call it by mistake: the failover detector of the *last* connection, which stays subscribed after
 * that connection is lost, and `disconnect(true)`, which asks for a new connection.
 * Upstream: https://github.com/redis/ioredis/issues/1362, mended by https://github.com/redis/ioredis/pull/2198 after
 * 6.0.0: `PatientConnector` can go with the first release that has it. Of `disconnect(true)` while connecting, BullMQ
 * knows the effect (https://github.com/taskforcesh/bullmq/issues/4378); no issue of ioredis is known.
 */
import {
  SentinelConnector,
  type Cluster,
  type Redis,
  type SentinelConnectionOptions,
} from "ioredis";

/** Stops the failover detector of the last connection before it searches for the next one. */
export class PatientConnector extends SentinelConnector {
  // ioredis declares one signature for connectors of every kind.
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

/** Ignores `disconnect(true)` while a client behind Sentinel connects: the search brings a new connection anyway. */
export function searchUntilClosed(client: Redis | Cluster): void {
  if (!("sentinels" in client.options) || !client.options.sentinels) return;
  const disconnect = client.disconnect.bind(client);
  client.disconnect = (reconnect) => {
    if (reconnect !== true || client.status !== "connecting") disconnect(reconnect);
  };
}
