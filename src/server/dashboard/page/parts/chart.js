/** The charts of a bucket: its rate beside its cap, and its waiting calls. The first chart loads uPlot. */
import { time } from "./format.js";

export const PRIORITIES = ["critical", "high", "normal", "low"];

let loading;

function load() {
  loading ??= new Promise((resolve, reject) => {
    const style = Object.assign(document.createElement("link"), {
      rel: "stylesheet",
      href: "uplot.css",
    });
    const script = Object.assign(document.createElement("script"), { src: "uplot.js" });
    script.onload = () => resolve(globalThis.uPlot);
    script.onerror = () =>
      reject(new Error("The chart library could not be loaded. Reload the page."));
    document.head.append(style, script);
  });
  return loading;
}

/** The changes that the chart marks. */
export function marksOf(changes, sinceMs) {
  return changes.filter(({ atMs, failed }) => atMs >= sinceMs && failed === undefined);
}

/** Processes that start within this time of each other count as one deploy. */
const ONE_DEPLOY_MS = 120_000;

/** The starts of the running processes of a bucket, the oldest first. */
export function deploysOf(replicas, sinceMs) {
  const deploys = [];
  const started = replicas
    .filter(({ startedAtMs }) => startedAtMs >= sinceMs)
    .toSorted((one, other) => one.startedAtMs - other.startedAtMs);
  for (const { startedAtMs: atMs } of started) {
    const last = deploys.at(-1);
    if (last !== undefined && atMs - last.untilMs < ONE_DEPLOY_MS) {
      last.untilMs = atMs;
      last.many += 1;
    } else deploys.push({ atMs, untilMs: atMs, many: 1 });
  }
  return deploys;
}

async function draw(place, parts, { height, data, seriesOf, onDraw, label }) {
  const uPlot = await load();
  if (place === null || !place.isConnected) return;
  place.marked = parts;
  if (place.chart !== undefined && place.chart.root.isConnected) {
    place.chart.setData(data);
    return;
  }
  place.textContent = "";
  // The canvas needs the colour of the current theme. Only a computed `color` has it.
  const colour = (name) => {
    place.style.color = `var(${name})`;
    return getComputedStyle(place).color;
  };
  const axis = {
    stroke: () => colour("--muted"),
    grid: { stroke: () => colour("--line"), width: 1 },
    ticks: { show: false },
    font: "12px system-ui",
  };
  const options = {
    width: place.clientWidth,
    height,
    padding: [12, 8, 0, 0],
    cursor: { y: false, points: { size: 6 } },
    legend: { show: false },
    scales: {
      x: { range: () => [place.marked.sinceMs / 1_000, Date.now() / 1_000] },
      y: { range: (_chart, _least, most) => [0, Math.max(1, most) * 1.15] },
    },
    axes: [
      {
        ...axis,
        size: 32,
        // Labels show minutes.
        incrs: [1, 2, 5, 10, 15, 30, 60, 120, 180, 240].map((minutes) => minutes * 60),
        values: (_chart, at) => at.map((seconds) => time(seconds * 1_000).slice(-8, -3)),
      },
      { ...axis, size: 48 },
    ],
    series: [{}, ...seriesOf(uPlot, colour)],
    hooks: { draw: [(chart) => onDraw?.(chart, place.marked, colour)] },
  };
  place.chart = new uPlot(options, data, place);
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", label);
  const watch = new ResizeObserver(() => {
    if (!place.isConnected) watch.disconnect();
    else place.chart.setSize({ width: place.clientWidth, height });
  });
  watch.observe(place);
}

/** The rate beside the cap, with marks. */
export function drawChart(place, parts) {
  return draw(place, parts, {
    height: 220,
    data: dataOf(parts),
    seriesOf: (uPlot, colour) => [
      {
        stroke: () => colour("--accent"),
        fill: () => colour("--accent-soft"),
        width: 1.5,
        points: { show: false },
      },
      {
        paths: uPlot.paths.stepped({ align: 1 }),
        stroke: () => colour("--cap"),
        width: 1.5,
        dash: [5, 4],
        points: { show: false },
      },
    ],
    onDraw: drawMarks,
    label: `Calls per second of ${parts.status.name}, and its cap`,
  });
}

/** The waiting calls, as stacked areas by priority. */
export function drawWaits(place, parts) {
  // The highest area is drawn first, because each reaches down to zero.
  const above = PRIORITIES.toReversed();
  return draw(place, parts, {
    height: 160,
    data: waitsOf(parts.history, parts.sinceMs),
    seriesOf: (_uPlot, colour) =>
      above.map((name) => ({
        fill: () => colour(`--${name}`),
        // A line at zero would look like waiting calls.
        width: 0,
        points: { show: false },
      })),
    label: `Waiting calls of ${parts.status.name}, by priority`,
  });
}

function waitsOf({ stepMs, points }, sinceMs) {
  const byStep = new Map(points.map(({ atMs, waiting }) => [atMs, waiting]));
  // The last step is incomplete: processes are still reporting it.
  const times = stepsOf(stepMs, sinceMs).slice(0, -1);
  const sums = PRIORITIES.map((_name, rank) =>
    times.map((atMs) =>
      PRIORITIES.slice(0, rank + 1).reduce((all, name) => all + (byStep.get(atMs)?.[name] ?? 0), 0),
    ),
  );
  return [times.map((atMs) => atMs / 1_000), ...sums.toReversed()];
}

function stepsOf(stepMs, sinceMs) {
  const startMs = Math.ceil(sinceMs / stepMs) * stepMs;
  const many = Math.max(0, Math.floor(Date.now() / stepMs) - startMs / stepMs);
  return Array.from({ length: many }, (_, at) => startMs + at * stepMs);
}

function dataOf({ status, history, changes, sinceMs, capOf }) {
  const { stepMs, points } = history;
  const byStep = new Map(points.map(({ atMs, started }) => [atMs, started]));
  const [times, rates, caps] = [[], [], []];
  const steps = capSteps(status, changes, capOf);
  for (const atMs of stepsOf(stepMs, sinceMs)) {
    times.push(atMs / 1_000);
    rates.push(((byStep.get(atMs) ?? 0) * 1_000) / stepMs);
    caps.push(steps.find((step) => atMs >= step.fromMs)?.cap ?? null);
  }
  return [times, rates, caps];
}

/** The caps and the time from which each was in force, the newest first. */
function capSteps(status, changes, capOf) {
  const made = changes.filter(
    ({ subject, failed }) => subject === "policy" && failed === undefined,
  );
  const steps = made.map(({ atMs, after }) => ({ fromMs: atMs, cap: capOf(after.policy) }));
  const first = made.at(-1);
  const before = first === undefined ? status.capPerSecond : capOf(first.before.policy);
  if (steps.length > 0) steps[0].cap = status.capPerSecond;
  return [...steps, { fromMs: 0, cap: before }];
}

/** Draws changes as lines with a dot, deploys as dashed lines with a square, and refusals as bars at the bottom. */
function drawMarks({ ctx, bbox, valToPos }, { marks, deploys, history }, colour) {
  const { left, top, width, height } = bbox;
  const dot = 3 * devicePixelRatio;
  const xOf = (atMs) => Math.round(valToPos(atMs / 1_000, "x", true));
  const isIn = (x) => x >= left && x <= left + width;

  function line(x, dash) {
    ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, top + height);
    ctx.stroke();
  }

  function use(name) {
    ctx.fillStyle = ctx.strokeStyle = colour(name);
  }

  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  use("--deploy");
  for (const x of deploys.map(({ atMs }) => xOf(atMs)).filter(isIn)) {
    line(x, [3, 3]);
    ctx.fillRect(x - dot, top - dot, 2 * dot, 2 * dot);
  }
  use("--mark");
  for (const x of marks.map(({ atMs }) => xOf(atMs)).filter(isIn)) {
    line(x, []);
    ctx.beginPath();
    ctx.arc(x, top, dot, 0, 7);
    ctx.fill();
  }
  use("--danger");
  for (const { atMs, refused } of history.points) {
    const x = xOf(atMs);
    if (refused > 0 && isIn(x)) ctx.fillRect(x - dot / 2, top + height - 4 * dot, dot, 4 * dot);
  }
  ctx.restore();
}
