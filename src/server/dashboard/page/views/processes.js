/** The processes that use buckets. */
import { ask } from "../parts/api.js";
import { h } from "../parts/dom.js";
import { ago, plural } from "../parts/format.js";
import { table } from "../parts/parts.js";

export function processesView() {
  return {
    title: "Processes",
    load: (signal) => ask("/api/v1/overview", { signal }),
    draw({ replicas }) {
      const versions = new Set(replicas.map(({ version }) => version)).size;
      const rows = replicas.map(({ replica, host, pid, version, startedAtMs, seenAtMs }) => [
        host,
        String(pid),
        version,
        ago(startedAtMs).replace(" ago", ""),
        ago(seenAtMs),
        h("code.muted", {}, replica.slice(0, 8)),
      ]);
      return [
        h("h1", {}, "Processes"),
        h(
          "p.muted",
          {},
          `${plural(replicas.length, "process has", "processes have")} been heard of in the last 90 seconds${versions > 1 ? `, of ${versions} versions` : ""}.`,
        ),
        h(
          "section.panel",
          { "aria-label": "Processes" },
          table(
            "Processes",
            ["Host", "#Pid", "Version", "#Runs for", "#Heard", "Name"],
            rows,
            "No process has told of itself.",
          ),
        ),
      ];
    },
  };
}
