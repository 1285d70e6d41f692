/** One bucket: its rate beside its cap, what waits, its limits, and what was changed; with what changes it. */
import { ask, bucketPath } from "../parts/api.js";
import { changesTable } from "../parts/changes.js";
import { deploysOf, drawChart, drawWaits, marksOf, PRIORITIES } from "../parts/chart.js";
import { h } from "../parts/dom.js";
import { openForm } from "../parts/form.js";
import { capOf, count, duration, rate } from "../parts/format.js";
import { lanesPanel } from "./queue.js";
import { badges, bar, button, crumb, isOn, panel, setBy, table, tile } from "../parts/parts.js";

const SPANS = [
  ["10 min", 600_000],
  ["1 h", 3_600_000],
  ["6 h", 21_600_000],
  ["24 h", 86_400_000],
];

export function bucketView({ name, redraw, stay, mayAct }) {
  const path = bucketPath(name);
  const shown = stay(`bucket ${name}`, { spanMs: 3_600_000 });

  return {
    title: name,
    async load(signal) {
      const sinceMs = Date.now() - shown.spanMs;
      const query = new URLSearchParams({ bucket: name, limit: 50 });
      const [status, { replicas }, keys, history, { changes }] = await Promise.all([
        ask(path, { signal }),
        ask("api/v1/overview", { signal }),
        ask(`${path}/keys`, { signal }),
        ask(`${path}/history?sinceMs=${sinceMs}`, { signal }),
        ask(`api/v1/changes?${query}`, { signal }),
      ]);
      const byName = new Map(replicas.map((replica) => [replica.replica, replica]));
      const told = status.toldBy.map((each) => ({ ...each, ...byName.get(each.replica) }));
      const deploys = deploysOf(told, sinceMs);
      return { status, told, keys, history, changes, deploys, sinceMs };
    },
    draw({ status, told, keys, history, changes, deploys, sinceMs }) {
      return [
        crumb("#/", "Buckets"),
        h(
          "div.head",
          {},
          h(
            "div",
            {},
            h("h1", {}, name),
            h(
              "p.muted",
              {},
              h("code", {}, status.policy),
              " set by ",
              setBy(status),
              badges(status),
            ),
          ),
          actions(status, changes),
        ),
        reasons(status),
        tiles(status),
        h(
          "section.panel",
          { "aria-label": "Rate beside the cap" },
          h("div.tools", {}, h("h2", {}, "Calls a second"), spans()),
          h("div.chart", { id: "chart", "data-keep": true, "data-key": `${name} ${shown.spanMs}` }),
          h(
            "p.legend",
            {},
            key("line", "started, of all processes"),
            key("cap", "cap"),
            key("mark", `changed by hand: ${marksOf(changes, sinceMs).length}`),
            key("deploy", `processes started: ${sum(deploys.map(({ many }) => many))}`),
            key("refused", `refused by the downstream: ${count(refusals(history))}`),
          ),
        ),
        h("div.columns", {}, waits(status, `${name} ${shown.spanMs}`), limits(status)),
        keys.lanes.length > 0 ? lanesPanel(keys, "Keys by waiting jobs") : undefined,
        panel(
          "Processes",
          table(
            "Processes",
            ["Process", "#Calls a second", "#Waiting", "#Told"],
            told.map(({ host, pid, replica, perSecond, waiting, toldAgoMs }) => [
              host === undefined
                ? h("code", {}, replica.slice(0, 8))
                : h("span", {}, host, h("span.muted", {}, ` · ${pid}`)),
              rate(perSecond),
              count(waiting),
              `${duration(toldAgoMs)} ago`,
            ]),
            "No process has told of this bucket in the last 90 seconds.",
            "cards",
          ),
        ),
        panel("Changes", changesTable(changes, "Nothing was changed.")),
      ];
    },
    after({ status, history, changes, deploys, sinceMs }) {
      const marks = marksOf(changes, sinceMs);
      const parts = { status, history, changes, marks, deploys, sinceMs, capOf };
      return Promise.all([
        drawChart(document.getElementById("chart"), parts),
        drawWaits(document.getElementById("waits"), parts),
      ]);
    },
  };

  function spans() {
    return h(
      "div.choice",
      { role: "group", "aria-label": "How far back" },
      SPANS.map(([label, spanMs]) =>
        button(label, () => (Object.assign(shown, { spanMs }), redraw()), {
          "aria-pressed": String(shown.spanMs === spanMs),
        }),
      ),
    );
  }

  function actions(status, changes) {
    if (!mayAct()) return h("p.muted", {}, "Your token may only look.");
    const last = changes.find(
      (change) =>
        change.undoneBy === undefined &&
        change.failed === undefined &&
        change.action !== "undo" &&
        change.action !== "expire" &&
        change.action !== "rules",
    );
    const { generation } = status;
    const form = (action, preview, body = { generation }) => {
      const words = () => ({ name });
      openForm(`bucket.${action}`, { path, redraw, body, words, preview });
    };
    return h(
      "div.actions",
      {},
      h(
        "button.primary",
        {
          type: "button",
          id: "change-rate",
          onclick: () =>
            form("configure", ({ rate: text }, { isValid, signal }) =>
              isValid
                ? rateEffect({ path, status }, { rate: text }, signal)
                : `In force: ${status.policy}.`,
            ),
        },
        "Change rate",
      ),
      isOn(status.pausedForMs)
        ? button("Resume", () =>
            form("resume", (_, { signal }) => resumeEffect({ path, status }, signal)),
          )
        : button("Pause", () =>
            form("pause", ({ forMs }, { signal }) => pauseEffect({ path, status }, forMs, signal)),
          ),
      button("Undo", () => form("undo", () => undoEffect(last), { id: last.id }), {
        disabled: last === undefined,
      }),
    );
  }
}

/** What the server says that a change would do. */
const previewOf = ({ path }, body, signal) =>
  ask(`${path}/preview`, { method: "POST", body, signal });

async function rateEffect(parts, policy, signal) {
  const { now, after } = await previewOf(parts, { policy }, signal);
  const change =
    now.capPerSecond === undefined
      ? `A cap of ${rate(after.capPerSecond)} calls a second, where there is none.`
      : `From ${rate(now.capPerSecond)} to ${rate(after.capPerSecond)} calls a second.`;
  const { actualPerSecond: actual } = parts.status;
  const tight =
    actual > after.capPerSecond ? ` ${rate(actual)} a second are called now: calls will wait.` : "";
  return `${change} ${drain({ now, after })}${tight}`;
}

function drain({ now, after }) {
  if (now.waiting === 0) return "Nothing waits now.";
  const those = `The ${count(now.waiting)} that wait`;
  if (after.goneInMs === "forever") return `${those} do not start before it is resumed.`;
  // Unknown without a rate that all calls share.
  if (after.capPerSecond === undefined) return `${those} start as their limits allow.`;
  const isOther = now.capPerSecond !== undefined && now.goneInMs !== after.goneInMs;
  const before = now.goneInMs === "forever" ? "never" : duration(now.goneInMs);
  const instead = isOther ? ` instead of ${before}` : "";
  return `${those} have started within ${duration(after.goneInMs)}${instead}, if no more come.`;
}

async function pauseEffect(parts, forMs, signal) {
  const pausedForMs = forMs ? Number(forMs) : "forever";
  const end = forMs ? `for ${duration(pausedForMs)}` : "until it is resumed";
  const now = `${rate(parts.status.actualPerSecond)} a second are called now; they will wait.`;
  const effect = drain(await previewOf(parts, { pausedForMs }, signal));
  return `No call starts in any process ${end}. ${now} ${effect}`;
}

async function resumeEffect(parts, signal) {
  const { capPerSecond: cap } = parts.status;
  const most = cap === undefined ? "what its limits allow" : `${rate(cap)} a second`;
  const effect = drain(await previewOf(parts, { pausedForMs: 0 }, signal));
  return `Calls start again, at up to ${most}. ${effect}`;
}

function undoEffect({ subject, before, action, by }) {
  const back =
    subject === "policy"
      ? `${before.policy} is in force again`
      : before.pausedForMs === 0
        ? "calls start again"
        : "the pause before is in force again";
  return `Takes back “${action}” by ${by}: ${back}.`;
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const refusals = ({ points }) => sum(points.map(({ refused }) => refused));
const key = (kind, text) => h("span", {}, h(`i.${kind}`, { "aria-hidden": "true" }), text);

function reasons({ pausedForMs, pausedBy, coolingForMs, awayForMs, waiting, limitedBy }) {
  const why = pausedBy?.reason === undefined ? "" : `: “${pausedBy.reason}”`;
  const by = pausedBy === undefined ? "" : ` by ${pausedBy.by}${why}`;
  const until =
    pausedForMs === "forever"
      ? "Nothing starts until it is resumed."
      : `Nothing starts for ${duration(pausedForMs)}.`;
  const isHeld = isOn(pausedForMs) || isOn(coolingForMs) || isOn(awayForMs);
  const cooling = `The downstream refused calls: nothing starts for ${duration(coolingForMs)}.`;
  const away = `The downstream is away: the next job tries in ${duration(awayForMs)}.`;
  return [
    isOn(pausedForMs) && h("p.alert", {}, `Paused${by}. ${until}`),
    isOn(coolingForMs) && h("p.alert", {}, cooling),
    isOn(awayForMs) && h("p.alert", {}, away),
    // That calls wait for their limit is what it is for.
    !isHeld &&
      waiting.total > 0 &&
      limitedBy !== undefined &&
      h("p.alert.info", {}, `Calls wait for ${limitedBy}.`),
  ];
}

function tiles({ actualPerSecond: actual, capPerSecond: cap, waiting, replicas, rateFactor }) {
  const share = cap === undefined ? undefined : actual / cap;
  return h(
    "div.tiles",
    {},
    tile("Calls a second", rate(actual), { note: "in the last ten seconds" }),
    tile("Cap", cap === undefined ? "–" : rate(cap), {
      note:
        cap === undefined
          ? "it has no rate"
          : rateFactor < 1
            ? `${Math.round(rateFactor * 100)} % of it in force`
            : "calls a second",
    }),
    tile("Share of the cap", share === undefined ? "–" : `${Math.round(share * 100)} %`, {
      meter: share ?? 0,
    }),
    tile("Waiting", count(waiting.total), {
      note: waiting.total === 0 ? "nothing waits" : `the oldest for ${duration(waiting.oldestMs)}`,
    }),
    tile("Drawing now", count(replicas), { note: replicas === 1 ? "process" : "processes" }),
  );
}

function waits({ waiting }, drawn) {
  const most = Math.max(1, ...Object.values(waiting.byPriority));
  const rows = PRIORITIES.map((name) => [name, waiting.byPriority[name] ?? 0]).map(([name, many]) =>
    h(
      `div.bars.of-${name}`,
      {},
      h("span", {}, h("i", { "aria-hidden": "true" }), name),
      bar(many / most / 1.06),
      h("span.num", {}, count(many)),
    ),
  );
  return panel(
    "Waiting by priority",
    h("div.chart", { id: "waits", "data-keep": true, "data-key": drawn }),
    h("p.legend", {}, "Now:"),
    rows,
  );
}

function limits(status) {
  const rows = status.limits.map(({ name, level, capacity, nextFreeMs }) => [
    h("code", {}, name),
    rate(level),
    rate(capacity),
    nextFreeMs === undefined ? "unknown" : duration(nextFreeMs),
  ]);
  return panel(
    "Limits",
    table("Limits", ["Limit", "#Used", "#Of", "#Next in"], rows, "No limit is shared by all keys."),
    status.shadows.length === 0 ? undefined : shadows(status),
  );
}

/** What limits would have done that only count. */
function shadows(status) {
  const rows = status.shadows.map((shadow) => [
    h("code", {}, shadow.name),
    count(shadow.calls),
    count(shadow.wouldHaveWaited),
    shadow.wouldHaveWaited === 0 ? "–" : duration(shadow.longestWaitMs),
    count(shadow.wouldHaveBeenRefused),
  ]);
  const heads = ["In shadow", "#Calls", "#Would wait", "#Longest", "#Would be refused"];
  return table("Shadows", heads, rows, "");
}
