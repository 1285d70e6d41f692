/** Who runs: the workers of all processes, and the processes. */
import { ask } from "../parts/api.js";
import { h } from "../parts/dom.js";
import { ago, count, plural } from "../parts/format.js";
import { badge, bar, nothing, panel, table } from "../parts/parts.js";

export function workersView() {
  return {
    title: "Workers",
    async load(signal) {
      const [{ replicas }, { workers }] = await Promise.all([
        ask("api/v1/overview", { signal }),
        ask("api/v1/workers", { signal }),
      ]);
      return { replicas, workers };
    },
    draw({ replicas, workers }) {
      const versions = new Set(replicas.map(({ version }) => version)).size;
      const byReplica = new Map(replicas.map((replica) => [replica.replica, replica]));
      const alive = workers.filter(({ state }) => state !== "silent");
      return [
        h("h1", {}, "Workers"),
        h(
          "p.muted",
          {},
          `${plural(alive.length, "worker")} in ${plural(replicas.length, "process", "processes")}${versions > 1 ? ` of ${versions} versions` : ""}. A process is shown for 90 seconds after it was last heard of.`,
        ),
        h(
          "section.panel",
          { "aria-label": "Workers" },
          table(
            "Workers",
            ["Queue", "Process", "#Runs for", "Busy", "#Wait for a slot", "State"],
            workers.map((worker) => workerRow(worker, byReplica.get(worker.replica))),
            "No worker runs. Jobs wait until one does.",
            "cards",
          ),
        ),
        panel(
          "Processes",
          table(
            "Processes",
            ["Process", "Version", "#Runs for", "#Workers", "#Jobs run", "#Heard"],
            replicas.map((replica) => processRow(replica, alive)),
            "No process has told of itself.",
            "cards",
          ),
        ),
      ];
    },
  };
}

/** How long ago, without that word. */
const since = (ms) => ago(ms).replace(" ago", "");
const placeOf = (replica) =>
  replica === undefined
    ? nothing()
    : h("span", {}, replica.host, h("span.muted", {}, ` · ${replica.pid}`));

function workerRow({ queue, sinceMs, running, waiting, concurrency, state, paused }, replica) {
  const link = h("a", { href: `#/queue/${encodeURIComponent(queue)}` }, queue);
  const states = [
    state === "closing" && badge("warn", "closing"),
    state === "silent" && badge("danger", "not heard of for 10 s"),
    paused && badge("danger", "queue paused"),
    state === "running" && !paused && badge("quiet", "running"),
  ];
  return [
    link,
    placeOf(replica),
    since(sinceMs),
    h(
      "div.rate",
      {},
      h("span", {}, h("b", {}, count(running)), h("span.muted", {}, ` of ${count(concurrency)}`)),
      bar(running / concurrency),
    ),
    waiting === 0 ? nothing() : count(waiting),
    h("span", {}, states),
  ];
}

function processRow(replica, workers) {
  const own = workers.filter((worker) => worker.replica === replica.replica);
  const running = own.reduce((sum, worker) => sum + worker.running, 0);
  return [
    placeOf(replica),
    replica.version,
    since(replica.startedAtMs),
    own.length === 0 ? nothing() : count(own.length),
    running === 0 ? nothing() : count(running),
    ago(replica.seenAtMs),
  ];
}
