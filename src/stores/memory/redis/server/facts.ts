import process from "node:process";

/** What the server reports about itself. The version is that of the Redis whose commands it follows. */
export const CONFIG = {
  version: "7.2.0",
  values: {
    appendonly: "no",
    databases: "16",
    maxclients: "10000",
    maxmemory: "0",
    "maxmemory-policy": "noeviction",
    "notify-keyspace-events": "",
    save: "",
    timeout: "0",
  },
};

/** Returns the reply of `INFO`. */
export function infoText(given: {
  readonly sections: readonly string[];
  readonly keyCounts: readonly (readonly [database: number, keys: number])[];
  readonly clients: number;
  readonly uptimeS: number;
}): string {
  const { sections, keyCounts, clients, uptimeS } = given;
  const { heapUsed } = process.memoryUsage();
  const facts: Record<string, Record<string, string | number>> = {
    Server: {
      redis_version: CONFIG.version,
      redis_mode: "standalone",
      process_id: process.pid,
      run_id: `${process.pid}`.padStart(40, "0"),
      uptime_in_seconds: uptimeS,
    },
    Clients: { connected_clients: clients, maxclients: CONFIG.values.maxclients },
    Memory: {
      used_memory: heapUsed,
      maxmemory: 0,
      maxmemory_policy: CONFIG.values["maxmemory-policy"],
    },
    Persistence: { loading: 0, aof_enabled: 0 },
    Replication: { role: "master", connected_slaves: 0 },
    Cluster: { cluster_enabled: 0 },
    Keyspace: Object.fromEntries(
      keyCounts
        .filter(([, keys]) => keys > 0)
        .map(([database, keys]) => [`db${database}`, `keys=${keys},expires=0,avg_ttl=0`]),
    ),
  };
  const wanted = sections.map((section) => section.toLowerCase());
  const hasAll = wanted.length === 0 || /^(?:all|default|everything)$/.test(wanted[0]!);
  return Object.entries(facts)
    .filter(([section]) => hasAll || wanted.includes(section.toLowerCase()))
    .map(([section, lines]) => {
      const text = Object.entries(lines).map(([name, value]) => `${name}:${value}\r\n`);
      return `# ${section}\r\n${text.join("")}`;
    })
    .join("\r\n");
}
