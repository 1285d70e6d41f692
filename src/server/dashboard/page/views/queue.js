import { ask } from "../parts/api.js";
import { keyLink } from "../parts/budgets.js";
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
  jobState,
  keyOf,
  link,
  nothing,
  notice,
  pageHead,
  pager,
  panel,
  settingsPanel,
  table,
  tablePanel,
  tile,
  when,
  whyText,
} from "../parts/parts.js";

const SHOWN = 25;
const JOBS_SHOWN = 10;
const JOB_STATES = [
  ["", "All"],
  ["waiting", "Queued"],
  ["active", "Running"],
  ["delayed", "Scheduled"],
  ["done", "Done"],
];
/** How many dead letters the page groups. It reads them again with each refresh, so only the newest. */
const GROUPED = 1_000;
const NO_GROUPS = { groups: [], looked: 0, hasMore: false };

export function queueView({ name, redraw, stay, mayAct }) {
  const path = `api/v1/queues/${encodeURIComponent(name)}`;
  /** The data of the dead letters for which the user pressed "Show data". */
  const shown = stay(`queue ${name}`, { data: new Map(), state: "", cursors: [] });

  return {
    title: name,
    async load(signal) {
      const query = new URLSearchParams({ queue: name, limit: SHOWN });
      const cursor = shown.cursors.at(-1);
      const page = new URLSearchParams({
        limit: JOBS_SHOWN,
        ...(shown.state && { state: shown.state }),
        ...(cursor && { cursor }),
      });
      const [queue, jobs, { failed }, { changes }] = await Promise.all([
        ask(path, { signal }),
        ask(`${path}/jobs?${page}`, { signal }),
        ask(`${path}/failed?limit=${SHOWN}`, { signal }),
        ask(`api/v1/changes?${query}`, { signal }),
      ]);
      const grouped = queue.status.jobs.failed > 0 ? await groupsOf(signal) : NO_GROUPS;
      return { ...queue, jobs, failed, grouped, changes };
    },
    draw({ bucket, status, pauses, schedules, jobs, failed, grouped, changes }) {
      const own = pauses.find(({ key }) => key === undefined);
      return [
        crumb("#/queues", "Queues"),
        pageHead(
          name,
          [
            "paced by bucket ",
            link(bucket, "bucket", bucket),
            own === undefined ? undefined : badge("danger", "paused"),
          ],
          actions(status, own),
        ),
        reasons(status, pauses),
        tiles(status),
        lanesPanel(status, bucket),
        panel("Jobs", jobsTable(jobs), stateChoice()),
        grouped.groups.length > 0 && panel("Dead letters by error", groupsTable(grouped)),
        panel(
          "Dead letters",
          [
            deadLetters(failed),
            status.jobs.failed > failed.length &&
              h(
                "p.muted",
                {},
                `The newest ${count(failed.length)} of ${count(status.jobs.failed)}.`,
              ),
          ],
          mayAct() &&
            status.jobs.failed > 0 &&
            button("Replay all", () => replay({ many: plural(status.jobs.failed, "job") })),
        ),
        settingsPanel("Settings", status.settings, "No settings.", {
          rules: () => [badge("quiet", "rules"), ` version ${status.rulesVersion}`],
        }),
        tablePanel(
          "Schedules",
          ["Schedule", "Repeats", "Next run", "Last run", "#Missed runs"],
          schedules.map(schedule),
          "No recurring jobs.",
        ),
        panel(
          "Changes",
          changesTable(changes, "No changes yet.", {
            redraw: mayAct() ? redraw : undefined,
          }),
        ),
      ];
    },
  };

  function show(state, cursors) {
    Object.assign(shown, { state, cursors });
    redraw();
  }

  function stateChoice() {
    return h(
      "div.choice",
      { role: "group", "aria-label": "Jobs by state" },
      JOB_STATES.map(([state, label]) =>
        button(label, () => show(state, []), { "aria-pressed": String(shown.state === state) }),
      ),
    );
  }

  function jobsTable({ jobs, cursor }) {
    const rows = jobs.map((job) => [
      link(job.id, "job", name, job.id),
      jobState(job.state ?? "gone"),
      h("span", {}, keyOf(job)),
      job.priority,
      `${count(job.attemptsMade)} of ${count(job.attempts)}`,
      when(job.enqueuedAtMs),
    ]);
    const heads = ["Job", "State", "Key", "Priority", "#Attempts", "Enqueued"];
    return [
      table("Jobs", heads, rows, "No job is in this state.", { kind: "cards.jobs" }),
      pager(shown.cursors, cursor, (cursors) => show(shown.state, cursors)),
    ];
  }

  /** Grouping reads many dead letters. If it fails or takes too long, the rest of the page still shows. */
  async function groupsOf(signal) {
    try {
      return await ask(`${path}/failed-groups?look=${GROUPED}`, { signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      return NO_GROUPS;
    }
  }

  function actions(status, own) {
    if (!mayAct()) return undefined;
    const { jobs, generation } = status;
    const form = (action, preview) => {
      const words = () => ({ name });
      openForm(`queue.${action}`, { path, redraw, body: { generation }, words, preview });
    };
    const waiting = plural(jobs.waiting, "queued job");
    return own === undefined
      ? button("Pause", () =>
          form(
            "pause",
            ({ forMs }) =>
              `No job of the queue starts ${forMs ? `for ${duration(Number(forMs))}` : "until you resume the queue"}. ${waiting} now. Running jobs continue.`,
          ),
        )
      : button("Resume", () =>
          form("resume", () => `Jobs start again at the rate of the bucket. ${waiting} now.`),
        );
  }

  /** Replays one dead letter by its id, a group of them, or all of them. */
  function replay({ id, group, many }) {
    openForm("queue.replay", {
      path,
      redraw,
      body: { id, group },
      words: ({ replayed } = { replayed: 0 }) => ({
        what: id ?? (group === undefined ? "all dead letters" : "the dead letters of this error"),
        replayed: plural(replayed, "job"),
      }),
      preview: () =>
        `${id === undefined ? many : "The job"} will run again from the first attempt, with a new slot. Anything done before may happen twice. You cannot undo this.`,
    });
  }

  function purge({ group, many }) {
    openForm("queue.purge", {
      path,
      redraw,
      body: { group },
      words: ({ purged } = { purged: 0 }) => ({
        what: "the dead letters of this error",
        purged: plural(purged, "job"),
      }),
      preview: () => `${many} will be removed for good, with their data. You cannot undo this.`,
    });
  }

  function groupsTable({ groups, looked, hasMore }) {
    const rows = groups.map((each) => {
      const { group, reason, code, tenants, topTenants } = each;
      const atLeast = hasMore ? "At least " : "";
      const many = `${atLeast}${plural(each.count, "job")}`;
      const names = topTenants.slice(0, 3).join(", ");
      const others = tenants - Math.min(3, topTenants.length);
      return [
        h("span", {}, code === undefined || reason.includes(code) ? reason : `${code}: ${reason}`),
        count(each.count),
        tenants === 0
          ? nothing()
          : h("span", {}, others > 0 ? `${names} +${count(others)}` : names),
        when(each.firstAtMs),
        when(each.lastAtMs),
        mayAct()
          ? h("div.actions", {}, [
              button("Replay", () => replay({ group, many }), {
                "aria-label": `Replay group ${group}`,
              }),
              button("Purge", () => purge({ group, many }), {
                "aria-label": `Purge group ${group}`,
              }),
            ])
          : "",
      ];
    });
    const title = "Dead letters by error";
    const heads = ["Error", "#Jobs", "Tenants", "First", "Last", ""];
    return [
      table(title, heads, rows, "No dead letters.", { kind: "cards.groups" }),
      hasMore && h("p.muted", {}, `Of the newest ${count(looked)} dead letters.`),
    ];
  }

  function deadLetters(failed) {
    const rows = failed.map((job) => [
      h("code", { title: job.id }, link(job.id, "job", name, job.id)),
      h("span", {}, keyOf(job)),
      count(job.attempts),
      when(job.failedAtMs),
      [h("span", {}, job.reason), mayAct() ? dataOf(job) : ""],
      mayAct()
        ? button("Replay", () => replay({ id: job.id }), {
            "aria-label": `Replay ${job.id}`,
          })
        : "",
    ]);
    const heads = ["Job", "Key", "#Attempts", "Failed", "Reason", ""];
    return table("Dead letters", heads, rows, "No dead letters.", { kind: "cards.letters" });
  }

  /** Data may be private. The page requests it only when a user who may act presses the button. */
  function dataOf({ id }) {
    const found = shown.data.get(id);
    if (found !== undefined) return h("pre", { tabindex: 0 }, found);
    const show = async () => {
      const { job } = await ask(`${path}/jobs/${encodeURIComponent(id)}?data=true`);
      const text = job.unreadable ?? JSON.stringify(job.data, undefined, 2);
      shown.data.set(id, text ?? "no data");
      redraw();
    };
    return h(
      "button.plain",
      { type: "button", "aria-label": `Show data of ${id}`, onclick: show },
      "Show data",
    );
  }
}

/** The keys with the most queued jobs. A key is skipped while it is paused or at its own limit. */
export function lanesPanel({ lanes, totalLanes }, bucket) {
  const title = "Queued jobs by key";
  const most = Math.max(1, ...lanes.map(({ jobs }) => jobs));
  const rows = lanes.map(({ key, jobs, weight, blockedForMs }) => [
    keyLink(bucket, key),
    h("div.rate", {}, bar(jobs / most)),
    count(jobs),
    weight === 1 ? h("span.muted.nothing", {}, "1") : String(weight),
    isOn(blockedForMs)
      ? badge("warn", blockedForMs === "forever" ? "paused" : `for ${duration(blockedForMs)}`)
      : nothing(),
  ]);
  const heads = ["Key", "Share", "#Queued jobs", "#Weight", "Skipped"];
  return panel(
    title,
    table(title, heads, rows, "No queued job has a key."),
    totalLanes > lanes.length &&
      h("span.muted", {}, `${count(lanes.length)} of ${plural(totalLanes, "key")}`),
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

function reasons({ name, oldest, unexplainedMs, workers, jobs }, pauses) {
  const keys = pauses.filter(({ key }) => key !== undefined);
  const own = pauses.find(({ key }) => key === undefined);
  const why = oldest?.why;
  return [
    own !== undefined &&
      notice(
        "warn",
        isOn(own.forMs) && own.forMs !== "forever"
          ? `Paused for ${duration(own.forMs)}.`
          : "Paused until you resume the queue.",
      ),
    keys.length > 0 && notice("warn", `${plural(keys.length, "key is", "keys are")} paused.`),
    workers === 0 && jobs.waiting > 0 && notice("warn", "No worker is running."),
    unexplainedMs > 0 &&
      notice(
        "warn",
        `No limit explains ${duration(unexplainedMs)} of the wait. Check the workers: they may be dead, stuck or too few.`,
      ),
    why !== undefined &&
      notice("info", [
        "The oldest due job, ",
        link(oldest.id, "job", name, oldest.id),
        `, waits: ${whyText(why)}.`,
      ]),
  ];
}

function tiles(status) {
  const { jobs, oldest, unexplainedMs, emptyInMs, reason, workers, workersWanted } = status;
  const { donePerSecond, failedPerSecond, failureRate } = status;
  const isAlarm = unexplainedMs > 0;
  return h(
    "div.tiles",
    {},
    tile("Queued jobs", count(jobs.waiting), {
      note: `${count(jobs.delayed)} scheduled, ${count(jobs.active)} running`,
    }),
    tile("Longest wait", oldest === undefined ? "–" : duration(oldest.waitingMs), {
      note: oldest === undefined ? "no job is due" : "since the oldest job was due",
    }),
    tile("Unexplained delay", isAlarm ? duration(unexplainedMs) : "0", {
      isWarning: isAlarm,
      note: isAlarm ? "no limit is the cause" : "every wait has a known cause",
    }),
    tile(
      "Empty in",
      jobs.waiting === 0 ? "–" : emptyInMs === undefined ? "unknown" : duration(emptyInMs),
      {
        note: jobs.waiting === 0 ? "the queue is empty" : (reason ?? "if no jobs are added"),
      },
    ),
    tile("Workers", count(workers), { note: `${count(workersWanted)} needed for the backlog` }),
    tile("Done per second", rate(donePerSecond), {
      note:
        failedPerSecond === 0
          ? "no failures"
          : `${rate(failedPerSecond)} failures, ${Math.round(failureRate * 100)} %`,
    }),
  );
}
