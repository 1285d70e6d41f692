/** One queue: what waits and why, dead letters, schedules; with pauses and replays. */
import { ask } from "../parts/api.js";
import { changesTable } from "../parts/changes.js";
import { h } from "../parts/dom.js";
import { openForm } from "../parts/form.js";
import { ago, count, duration, plural, rate } from "../parts/format.js";
import {
  badge,
  bar,
  button,
  crumb,
  isOn,
  nothing,
  panel,
  settingsPanel,
  table,
  tile,
  when,
} from "../parts/parts.js";

const SHOWN = 25;

export function queueView({ name, redraw, stay, mayAct }) {
  const path = `api/v1/queues/${encodeURIComponent(name)}`;
  /** The data of dead letters that somebody asked for. */
  const seen = stay(`queue ${name}`, { data: new Map() });

  return {
    title: name,
    async load(signal) {
      const query = new URLSearchParams({ queue: name, limit: SHOWN });
      const [queue, { failed }, { changes }] = await Promise.all([
        ask(path, { signal }),
        ask(`${path}/failed?limit=${SHOWN}`, { signal }),
        ask(`api/v1/changes?${query}`, { signal }),
      ]);
      return { ...queue, failed, changes };
    },
    draw({ bucket, status, pauses, schedules, failed, changes }) {
      const own = pauses.find(({ key }) => key === undefined);
      return [
        crumb("#/queues", "Queues"),
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
              "leaves through ",
              h("a", { href: `#/bucket/${encodeURIComponent(bucket)}` }, bucket),
              own === undefined ? undefined : badge("danger", "paused"),
            ),
          ),
          actions(status, own),
        ),
        reasons(status, pauses),
        tiles(status),
        lanesPanel(status),
        h(
          "section.panel",
          { "aria-label": "Dead letters" },
          h(
            "div.tools",
            {},
            h("h2", {}, "Dead letters"),
            mayAct() && status.jobs.failed > 0
              ? button("Replay all", () => replay({ many: status.jobs.failed }))
              : undefined,
          ),
          deadLetters(failed),
          status.jobs.failed > failed.length
            ? h(
                "p.muted",
                {},
                `The newest ${count(failed.length)} of ${count(status.jobs.failed)}.`,
              )
            : undefined,
        ),
        settingsPanel("Settings", status.settings, "Nothing is set.", {
          rules: () => [badge("quiet", "rules"), ` version ${status.rulesVersion}`],
        }),
        panel(
          "Schedules",
          table(
            "Schedules",
            ["Name", "Every", "Next", "Last", "#Missed"],
            schedules.map(schedule),
            "No job recurs.",
            "cards",
          ),
        ),
        panel(
          "Changes",
          changesTable(changes, "Nothing was changed.", {
            redraw: mayAct() ? redraw : undefined,
          }),
        ),
      ];
    },
  };

  function actions(status, own) {
    if (!mayAct()) return h("p.muted", {}, "Your token may only look.");
    const { jobs, generation } = status;
    const form = (action, preview) => {
      const words = () => ({ name });
      openForm(`queue.${action}`, { path, redraw, body: { generation }, words, preview });
    };
    const waiting = count(jobs.waiting);
    return h(
      "div.actions",
      {},
      own === undefined
        ? button("Pause", () =>
            form(
              "pause",
              ({ forMs }) =>
                `No job of the queue starts ${forMs ? `for ${duration(Number(forMs))}` : "until it is resumed"}. ${waiting} wait now; jobs that run go on.`,
            ),
          )
        : button("Resume", () =>
            form("resume", () => `Jobs start again as the bucket lets them; ${waiting} wait.`),
          ),
    );
  }

  /** Of one dead letter by its id, or of all. */
  function replay({ id, many }) {
    openForm("queue.replay", {
      path,
      redraw,
      body: id === undefined ? {} : { id },
      words: ({ replayed } = { replayed: 0 }) => ({
        what: id ?? "all dead letters",
        replayed: plural(replayed, "job"),
      }),
      preview: () =>
        `${id === undefined ? plural(many, "job") : "The job"} will run again from the first attempt, each on a slot of its own. What they did before, they may do twice. This cannot be undone.`,
    });
  }

  function deadLetters(failed) {
    const rows = failed.map((job) => [
      when(job.failedAtMs),
      h("code", {}, job.id),
      keyOf(job),
      [h("span", {}, job.reason), mayAct() ? dataOf(job) : ""],
      count(job.attempts),
      mayAct()
        ? button("Replay", () => replay({ id: job.id }), {
            "aria-label": `Replay ${job.id}`,
          })
        : "",
    ]);
    const heads = ["Failed", "Job", "Key", "Why", "#Attempts", ""];
    return table("Dead letters", heads, rows, "No job has failed for the last time.", "cards");
  }

  /** Data may be private: it is asked for only if somebody wants to see it, who may act. */
  function dataOf({ id }) {
    const found = seen.data.get(id);
    if (found !== undefined) return h("pre", { tabindex: 0 }, found);
    const show = async () => {
      const { job } = await ask(`${path}/jobs/${encodeURIComponent(id)}?data=true`);
      seen.data.set(id, JSON.stringify(job.data, undefined, 2) ?? "no data");
      redraw();
    };
    return h(
      "button.plain",
      { type: "button", "aria-label": `Show data of ${id}`, onclick: show },
      "Show data",
    );
  }
}

const keyOf = ({ key }) =>
  key === undefined ? nothing() : typeof key === "string" ? key : key.join(" / ");

/** The keys of which most jobs wait: who is behind the backlog, and who stands aside. */
export function lanesPanel({ lanes, lanesInAll }, title = "Keys by waiting") {
  const most = Math.max(1, ...lanes.map(({ jobs }) => jobs));
  const rows = lanes.map(({ key, jobs, weight, asideMs }) => [
    keyOf({ key }),
    h("div.rate", {}, bar(jobs / most / 1.06)),
    count(jobs),
    weight === 1 ? h("span.muted.nothing", {}, "1") : String(weight),
    isOn(asideMs)
      ? badge("warn", asideMs === "forever" ? "paused" : `aside, ${duration(asideMs)}`)
      : nothing(),
  ]);
  const heads = ["Key", "Part", "#Waiting", "#Weight", "Held back"];
  return h(
    "section.panel",
    { "aria-label": title },
    h(
      "div.tools",
      {},
      h("h2", {}, title),
      lanesInAll > lanes.length
        ? h("span.muted", {}, `${count(lanes.length)} of ${plural(lanesInAll, "key")}`)
        : undefined,
    ),
    table(title, heads, rows, "No job with a key waits.", "cards"),
  );
}

function schedule({ dedupeId, every, cron, timeZone, nextAtMs, last, missed }) {
  const how = cron === undefined ? duration(every) : `${cron} (${timeZone})`;
  const ended =
    last === undefined
      ? "never"
      : `${ago(last.startedAtMs)}${last.outcome === undefined ? "" : `, ${last.outcome}`}`;
  const left = nextAtMs - Date.now();
  return [
    dedupeId,
    h("code", {}, how),
    left > 0 ? `in ${duration(left)}` : "due",
    ended,
    count(missed),
  ];
}

function reasons({ oldest, unexplainedMs, workers, jobs }, pauses) {
  const keys = pauses.filter(({ key }) => key !== undefined);
  const own = pauses.find(({ key }) => key === undefined);
  const why = oldest?.why;
  const limit = why?.limit === undefined ? "" : ` (${why.limit})`;
  return [
    own !== undefined &&
      h(
        "p.alert",
        {},
        isOn(own.forMs) && own.forMs !== "forever"
          ? `Paused for ${duration(own.forMs)}.`
          : "Paused until it is resumed.",
      ),
    keys.length > 0 && h("p.alert", {}, `${plural(keys.length, "key is", "keys are")} paused.`),
    workers === 0 && jobs.waiting > 0 && h("p.alert", {}, "No worker is alive."),
    unexplainedMs > 0 &&
      h(
        "p.alert",
        {},
        `No limit explains ${duration(unexplainedMs)} of the wait: workers are dead, too few or stand still.`,
      ),
    why !== undefined &&
      h(
        "p.alert.info",
        {},
        `The oldest job that is due, ${oldest.id}, waits for: ${why.waitsFor}${limit}.`,
      ),
  ];
}

function tiles(status) {
  const { jobs, oldest, unexplainedMs, goneInMs, reason, workers, workersWanted } = status;
  const { donePerSecond, failedPerSecond, failureRate } = status;
  const isAlarm = unexplainedMs > 0;
  return h(
    "div.tiles",
    {},
    tile("Waiting", count(jobs.waiting), {
      note: `${count(jobs.delayed)} for later, ${count(jobs.active)} run`,
    }),
    tile("Oldest due", oldest === undefined ? "–" : duration(oldest.waitingMs), {
      note: oldest === undefined ? "nothing waits" : "",
    }),
    tile("Unexplained delay", isAlarm ? duration(unexplainedMs) : "0", {
      tone: isAlarm ? "warn" : undefined,
      note: isAlarm ? "no limit is the reason" : "nothing waits without a reason",
    }),
    tile(
      "Gone in",
      jobs.waiting === 0 ? "–" : goneInMs === undefined ? "unknown" : duration(goneInMs),
      {
        note: jobs.waiting === 0 ? "nothing waits" : (reason ?? "if nothing changes"),
      },
    ),
    tile("Workers", count(workers), { note: `${count(workersWanted)} wanted for the backlog` }),
    tile("Done a second", rate(donePerSecond), {
      note:
        failedPerSecond === 0
          ? "none fails"
          : `${rate(failedPerSecond)} fail, ${Math.round(failureRate * 100)} %`,
    }),
  );
}
