import { ask, bucketPath } from "../parts/api.js";
import { budgetsPanel, grantEffect, keyLink } from "../parts/budgets.js";
import { changesTable } from "../parts/changes.js";
import { deploysOf, drawChart, drawWaits, marksOf, PRIORITIES } from "../parts/chart.js";
import { h } from "../parts/dom.js";
import { openForm } from "../parts/form.js";
import { UNDOABLE } from "../parts/forms.js";
import { capOf, count, duration, plural, rate, rateOf, time } from "../parts/format.js";
import { lanesPanel } from "./queue.js";
import {
  badges,
  bar,
  button,
  crumb,
  isOn,
  notice,
  pageHead,
  panel,
  setBy,
  table,
  tablePanel,
  tile,
} from "../parts/parts.js";

const SPANS = [
  ["10 min", 600_000],
  ["1 h", 3_600_000],
  ["6 h", 21_600_000],
  ["24 h", 86_400_000],
];

/** How many budgets of keys the view shows, and how often it reads them. */
const MOST_BUDGETS = 10;
const BUDGETS_EVERY_MS = 10_000;

/** A rate in an emergency is rarely meant to last. The operator can choose another end. */
const ONE_HOUR_MS = 3_600_000;

export function bucketView({ name, redraw, stay, mayAct }) {
  const path = bucketPath(name);
  const shown = stay(`bucket ${name}`, { spanMs: SPANS[0][1] });

  return {
    title: name,
    async load(signal) {
      const sinceMs = Date.now() - shown.spanMs;
      const query = new URLSearchParams({ bucket: name, limit: 50 });
      const [status, { replicas }, keys, history, { changes }, budgets] = await Promise.all([
        ask(path, { signal }),
        ask("api/v1/overview", { signal }),
        ask(`${path}/keys`, { signal }),
        ask(`${path}/history?sinceMs=${sinceMs}`, { signal }),
        ask(`api/v1/changes?${query}`, { signal }),
        budgetsOfKeys(signal),
      ]);
      const byName = new Map(replicas.map((replica) => [replica.replica, replica]));
      const processes = status.reports.map((each) => ({ ...each, ...byName.get(each.replica) }));
      const deploys = deploysOf(processes, sinceMs);
      return { status, processes, keys, history, changes, deploys, sinceMs, budgets };
    },
    draw({ status, processes, keys, history, changes, deploys, sinceMs, budgets }) {
      return [
        crumb("#/", "Buckets"),
        pageHead(
          name,
          [h("code", {}, status.policy), " set by ", setBy(status), badges(status)],
          actions(status, changes),
        ),
        reasons(status),
        tiles(status),
        panel(
          "Calls per second",
          [
            chart("chart"),
            h(
              "p.legend",
              {},
              key("line", "started in all processes"),
              key("cap", "cap"),
              key("mark", `changes: ${marksOf(changes, sinceMs).length}`),
              key("deploy", `processes started: ${sum(deploys.map(({ many }) => many))}`),
              key("refused", `refused by the downstream: ${count(refusals(history))}`),
            ),
          ],
          spans(),
        ),
        h("div.columns", {}, waits(status, chart("waits")), limits(status)),
        status.members !== undefined && members(status),
        status.turns.length > 0 && turns(name, status),
        status.budgets !== undefined && budgetsPanel("Budgets", status.budgets),
        keyBudgets(name, budgets),
        keys.lanes.length > 0 ? lanesPanel(keys, name) : undefined,
        tablePanel(
          "Processes",
          ["Process", "#Calls per second", "#Waiting calls", "#Last report"],
          processes.map(({ host, pid, replica, perSecond, waiting, reportedAgoMs }) => [
            host === undefined
              ? h("code", {}, replica.slice(0, 8))
              : h("span", {}, host, h("span.muted", {}, ` · ${pid}`)),
            rate(perSecond),
            count(waiting),
            `${duration(reportedAgoMs)} ago`,
          ]),
          "No process has reported this bucket in the last 90 seconds.",
        ),
        panel("Changes", changesTable(changes, "No changes yet.")),
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

  /** The server reads the balances of all keys for this, so the view asks less often. */
  async function budgetsOfKeys(signal) {
    const { budgets } = shown;
    if (budgets !== undefined && Date.now() < budgets.atMs + BUDGETS_EVERY_MS) return budgets.found;
    const query = new URLSearchParams({ all: true, limit: 2 * MOST_BUDGETS });
    const found = await ask(`${path}/budgets?${query}`, { signal });
    shown.budgets = { found, atMs: Date.now() };
    return found;
  }

  /** A new time range gets a new chart. */
  function chart(id) {
    return h("div.chart", { id, "data-keep": true, "data-key": `${name} ${shown.spanMs}` });
  }

  function spans() {
    return h(
      "div.choice",
      { role: "group", "aria-label": "Time range" },
      SPANS.map(([label, spanMs]) =>
        button(label, () => (Object.assign(shown, { spanMs }), redraw()), {
          "aria-pressed": String(shown.spanMs === spanMs),
        }),
      ),
    );
  }

  function actions(status, changes) {
    if (!mayAct()) return undefined;
    const last = changes.find(
      ({ action, undoneBy, failed }) =>
        UNDOABLE.has(action) && undoneBy === undefined && failed === undefined,
    );
    const { generation } = status;
    const form = (action, preview, { body = { generation }, values, trial } = {}) => {
      const words = () => ({ name });
      openForm(`bucket.${action}`, { path, redraw, body, words, preview, trial, values });
    };
    /** Asks the server for the effect of a change. */
    const outlook = (body, signal) => ask(`${path}/preview`, { method: "POST", body, signal });
    const change = async ({ rate: text }, { isValid, signal }) =>
      isValid
        ? rateEffect(status, await outlook({ policy: { rate: text } }, signal))
        : `In force: ${status.policy}.`;
    const trial = {
      label: "Try on the last 24 h",
      run: async ({ rate: text }, signal) =>
        trialParts(
          await ask(`${path}/trial`, { method: "POST", body: { policy: { rate: text } }, signal }),
        ),
    };
    const pause = async ({ forMs }, { signal }) =>
      pauseEffect(
        status,
        forMs,
        await outlook({ pausedForMs: Number(forMs) || "forever" }, signal),
      );
    const resume = async (_, { signal }) =>
      resumeEffect(status, await outlook({ pausedForMs: 0 }, signal));
    const values = { rate: rateOf(status.policy), forMs: ONE_HOUR_MS };
    return [
      button("Change rate", () => form("configure", change, { values, trial }), {
        class: "primary",
      }),
      status.budgets !== undefined &&
        button("Grant", () => form("grant", grantEffect, { body: {} })),
      isOn(status.pausedForMs)
        ? button("Resume", () => form("resume", resume))
        : button("Pause", () => form("pause", pause)),
      button("Undo", () => form("undo", () => undoEffect(last), { body: { id: last.id } }), {
        disabled: last === undefined,
      }),
    ];
  }
}

function rateEffect({ actualPerSecond: actual, limits }, { now, after }) {
  const [from, to] = [now.capPerSecond, after.capPerSecond].map(rate);
  const change =
    now.capPerSecond === undefined
      ? `The bucket has no cap now. It will be ${to} calls per second.`
      : now.policy === after.policy
        ? `${to} calls per second, as now.`
        : from === to
          ? `${to} calls per second.`
          : `From ${from} to ${to} calls per second.`;
  const tight =
    actual > after.capPerSecond
      ? ` Now there are ${rate(actual)} per second, so calls will wait.`
      : "";
  const shared = limits.map(({ name }) => name);
  const removed =
    shared.length > 1 ? ` The new rate replaces all of these: ${shared.join(", ")}.` : "";
  return `${change}${removed} ${drain({ now, after })}${tight}`;
}

/** The waits of simulated calls under the rate in force and under the new one. */
function trialParts(found) {
  const { fromMs, untilMs, isWhole, calls, callsInHistory, rejectedByApi, maxWaitMs } = found;
  const row = (label, show) => [label, ...[found.now, found.after].map(show)];
  const rows = [
    row("Half of the calls wait up to", ({ p50Ms }) => duration(p50Ms)),
    row("99 % wait up to", ({ p99Ms }) => duration(p99Ms)),
    row("Longest wait", ({ longestMs }) => duration(longestMs)),
    row(`Wait over ${duration(maxWaitMs)}`, ({ late }) => count(late)),
    row("Still wait at the end", ({ waiting }) => count(waiting)),
    row("Rejected by a budget", ({ refused }) => count(refused)),
  ];
  const span = `${time(fromMs)} to ${time(untilMs)}`;
  const part = isWhole
    ? ""
    : ` This part of ${plural(callsInHistory, "call")} has the busiest ten seconds.`;
  return [
    table("Simulated calls", ["Simulated calls", "#Now", "#After"], rows, "", { kind: "plain" }),
    h(
      "p.muted",
      {},
      `${plural(calls, "call")}, ${span}.${part} In this time, the API rejected ${plural(rejectedByApi, "call")}.`,
    ),
  ];
}

function drain({ now, after }) {
  if (now.waiting === 0) return "No call is waiting now.";
  const those = `The ${plural(now.waiting, "waiting call")}`;
  if (after.emptyInMs === "forever") return `${those} will not start until you resume the bucket.`;
  // Unknown without a rate that all calls share.
  if (after.capPerSecond === undefined) return `${those} will start as the limits allow.`;
  const isOther = now.capPerSecond !== undefined && now.emptyInMs !== after.emptyInMs;
  const before = now.emptyInMs === "forever" ? "never" : `within ${duration(now.emptyInMs)}`;
  const instead = isOther ? ` instead of ${before}` : "";
  return `${those} will start within ${duration(after.emptyInMs)}${instead}, if no others arrive.`;
}

function pauseEffect({ actualPerSecond: actual }, forMs, outlook) {
  const end = forMs ? `for ${duration(Number(forMs))}` : "until you resume the bucket";
  return `No process starts calls ${end}. Now there are ${rate(actual)} per second; they will wait. ${drain(outlook)}`;
}

function resumeEffect({ capPerSecond: cap }, outlook) {
  const most = cap === undefined ? "the rate that its limits allow" : `${rate(cap)} per second`;
  return `Calls start again, up to ${most}. ${drain(outlook)}`;
}

function undoEffect({ subject, before, action, by }) {
  const back =
    subject === "policy"
      ? `${before.policy} is in force again`
      : subject === "budget"
        ? "the budgets lose the grant again"
        : before.pausedForMs === 0
          ? "calls start again"
          : "the previous pause is in force again";
  return `Undoes “${action}” by ${by}: ${back}.`;
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const refusals = ({ points }) => sum(points.map(({ refused }) => refused));
const key = (kind, text) => h("span", {}, h(`i.${kind}`, { "aria-hidden": "true" }), text);

function reasons(status) {
  const { pausedForMs, pausedBy, coolingForMs, unreachableForMs, waiting, limitedBy } = status;
  const why = pausedBy?.reason === undefined ? "" : `: “${pausedBy.reason}”`;
  const by = pausedBy === undefined ? "" : ` by ${pausedBy.by}${why}`;
  const until =
    pausedForMs === "forever"
      ? "No call starts until you resume the bucket."
      : `No call starts for ${duration(pausedForMs)}.`;
  const isHeld = isOn(pausedForMs) || isOn(coolingForMs) || isOn(unreachableForMs);
  const cooling = `Cooling down: the downstream refused calls. No call starts for ${duration(coolingForMs)}.`;
  const away = `The downstream is unreachable. The next job tries it in ${duration(unreachableForMs)}.`;
  return [
    isOn(pausedForMs) && notice("warn", `Paused${by}. ${until}`),
    isOn(coolingForMs) && notice("warn", cooling),
    isOn(unreachableForMs) && notice("warn", away),
    // Not an alarm: calls that wait for a slot are what a limit is for.
    !isHeld &&
      waiting.total > 0 &&
      limitedBy !== undefined &&
      notice(
        "info",
        `Calls wait for slots under the limit ${limitedBy}.${status.turns.length > 1 ? " Their keys take turns." : ""}`,
      ),
  ];
}

function tiles({ actualPerSecond: actual, capPerSecond: cap, waiting, replicas, rateFactor }) {
  const share = cap === undefined ? undefined : actual / cap;
  return h(
    "div.tiles",
    {},
    tile("Calls per second", rate(actual), { note: "in the last ten seconds" }),
    tile("Cap", cap === undefined ? "–" : rate(cap), {
      note:
        cap === undefined
          ? "the bucket has no rate"
          : rateFactor < 1
            ? `${Math.round(rateFactor * 100)} % of it in force`
            : "calls per second",
    }),
    tile("Rate in use", share === undefined ? "–" : `${Math.round(share * 100)} %`, {
      meter: share ?? 0,
      note: share === undefined ? "" : "of the cap",
    }),
    tile("Waiting calls", count(waiting.total), {
      note:
        waiting.total === 0
          ? "no call is waiting"
          : `the longest for ${duration(waiting.oldestMs)}`,
    }),
    tile("Active processes", count(replicas), { note: "called in the last two seconds" }),
  );
}

function waits({ waiting }, chart) {
  const most = Math.max(1, ...Object.values(waiting.byPriority));
  const rows = PRIORITIES.map((name) => [name, waiting.byPriority[name] ?? 0]).map(([name, many]) =>
    h(
      `div.bars.of-${name}`,
      {},
      h("span", {}, h("i", { "aria-hidden": "true" }), name),
      bar(many / most),
      h("span.num", {}, count(many)),
    ),
  );
  return panel("Waiting calls by priority", [chart, h("p.legend", {}, "Now:"), rows]);
}

function limits(status) {
  const rows = status.limits.map(({ name, level, capacity, nextFreeMs }) => [
    h("code", {}, name),
    rate(level),
    rate(capacity),
    status.pausedForMs === "forever" ? "after a resume" : duration(nextFreeMs),
  ]);
  const heads = ["Limit", "#Used", "#Capacity", "#Next slot in"];
  return panel("Limits", [
    table("Limits", heads, rows, "All limits are per key.", { kind: "plain" }),
    [...status.limits, ...(status.members ?? []).flatMap((member) => member.limits)]
      .filter((limit) => limit.adaptive !== undefined)
      .map((limit) => h("p.legend", {}, adaptiveText(limit))),
    status.shadows.length > 0 && shadows(status),
  ]);
}

/** Says how many calls a limit that adapts lets run at once, and why. */
function adaptiveText({ name, adaptive }) {
  const { atOnce, value, shadow, baselineMs, recentMs, reason } = adaptive;
  const now = shadow
    ? `is in shadow: ${count(atOnce)} calls may run at once, and it would allow ${count(Math.round(value))}`
    : `lets ${plural(atOnce, "call")} run at once now`;
  const latency =
    reason === "calibrating"
      ? "It calibrates: it still measures the latency without a queue."
      : `Calls take ${duration(recentMs)}, and ${duration(baselineMs)} without a queue.`;
  return `The limit ${name} ${now}. ${latency}`;
}

/** The balances of the keys that have spent the largest parts. Undefined if no key has a budget. */
function keyBudgets(bucket, { budgets, total }) {
  const ofKeys = budgets.filter(
    ({ key, keys, member }) => key !== undefined || keys !== undefined || member !== undefined,
  );
  if (ofKeys.length === 0) return undefined;
  const shown = ofKeys.slice(0, MOST_BUDGETS);
  const isPart = total > budgets.length || ofKeys.length > shown.length;
  const more =
    isPart && h("p.muted", {}, `The ${count(shown.length)} with the largest spent part.`);
  return budgetsPanel("Budgets of keys", shown, { bucket, owners: true, more });
}

/** The members of a pool. */
function members(status) {
  const rows = status.members.map((member) => [
    h("code", {}, member.name),
    memberState(member),
    `${Math.round(member.rateFactor * 100)} %`,
    member.limits
      .map(({ level, capacity, unit }) => `${count(level)} of ${count(capacity)} ${unit}`)
      .join(", "),
  ]);
  return tablePanel("Members", ["Member", "State", "#Rate", "Used"], rows, "");
}

function memberState({ drained, coolingForMs, unreachableForMs }) {
  if (drained) return "drained";
  if (unreachableForMs > 0) return `unreachable, next try in ${duration(unreachableForMs)}`;
  return coolingForMs > 0 ? `cooling down for ${duration(coolingForMs)}` : "takes calls";
}

const FIRST = { critical: "critical call", floor: "within its floor" };

/** The keys with pending calls, in the order of their turns. */
function turns(bucket, status) {
  const rows = status.turns.map(({ key: name, keys, weights, floor, goesFirst, waitedMs }) => [
    keys === undefined && name === undefined
      ? "calls without a key"
      : keys === undefined
        ? keyLink(bucket, name)
        : h("code", {}, JSON.stringify(keys)),
    weights.join(" / "),
    floor ?? "–",
    FIRST[goesFirst] ?? "–",
    duration(waitedMs),
  ]);
  const heads = ["Next turn", "Weight", "Floor", "Goes first", "#Oldest call waits for"];
  return tablePanel("Turns of keys", heads, rows, "");
}

/** Shadow limits delay no call. They count what they would have done. */
function shadows(status) {
  const rows = status.shadows.map((shadow) => [
    h("code", {}, shadow.name),
    count(shadow.calls),
    count(shadow.wouldHaveWaited),
    shadow.wouldHaveWaited === 0 ? "–" : duration(shadow.longestWaitMs),
    count(shadow.wouldHaveBeenRefused),
  ]);
  const heads = [
    "Shadow limit",
    "#Calls",
    "#Would have waited",
    "#Longest wait",
    "#Would have been refused",
  ];
  return table("Shadow limits", heads, rows, "", { kind: "plain" });
}
