import {
  SentinelConnector,
  type Cluster,
  type Redis,
  type SentinelConnectionOptions,
} from "ioredis";

/**
 * Finds the primary of the moment, for as long as it takes. What ioredis left listening for a failover of the last
 * connection would break off the search for the next one, and ioredis gives a connection up for good then.
 */
export class PatientConnector extends SentinelConnector {
  // Declared by ioredis for connectors of every kind.
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

/** Behind Sentinel, lets only a close break off that search: who wants another connection gets one by it. */
export function searchUntilClosed(client: Redis | Cluster): void {
  if (!("sentinels" in client.options) || !client.options.sentinels) return;
  const disconnect = client.disconnect.bind(client);
  client.disconnect = (isToReturn) => {
    if (isToReturn !== true || client.status !== "connecting") disconnect(isToReturn);
  };
}
