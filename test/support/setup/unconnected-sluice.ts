import { afterEach } from "vitest";
import { createSluice, type Sluice } from "sluice";

/**
 * Opens sluices that never reach a Redis, and closes them after each test: test files share a process, so an open client
 * would reconnect during the tests of other files.
 */
export function unconnectedSluices(): () => Sluice {
  let opened: Sluice[] = [];
  afterEach(async () => {
    await Promise.all(opened.map((sluice) => sluice.close()));
    opened = [];
  });
  return () => {
    const logger = { warn() {}, error() {} };
    const sluice = createSluice({ redis: "redis://127.0.0.1:1", logger });
    opened.push(sluice);
    return sluice;
  };
}
