/** The rate beside the cap over time, by uPlot, which is loaded when it is first drawn. */
import { time } from "./format.js";

let loading;

function load() {
  loading ??= new Promise((resolve, reject) => {
    const style = Object.assign(document.createElement("link"), {
      rel: "stylesheet",
      href: "uplot.css",
    });
    const script = Object.assign(document.createElement("script"), { src: "uplot.js" });
    script.onload = () => resolve(globalThis.uPlot);
    script.onerror = () => reject(new Error("The chart could not be loaded."));
    document.head.append(style, script);
  });
  return loading;
}

/** Changes that are marked, with when they were made. */
export function marksOf(changes, sinceMs) {
  return changes.filter(({ atMs, failed }) => atMs >= sinceMs && failed === undefined);
}

export async function drawChart(place, { status, history, changes, marks, sinceMs, capOf }) {
  const uPlot = await load();
  if (place === null || !place.isConnected) return;
  const data = dataOf({ status, history, changes, sinceMs, capOf });
  if (place.chart !== undefined && place.chart.root.isConnected) {
    place.marks = marks;
    place.chart.setData(data);
    return;
  }
  place.textContent = "";
  place.marks = marks;
  // As a property it names the colours of both themes; as a colour it is that of the theme shown.
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
    height: 220,
    padding: [12, 8, 0, 0],
    cursor: { y: false, points: { size: 6 } },
    legend: { show: false },
    scales: { y: { range: (_chart, _least, most) => [0, Math.max(1, most) * 1.15] } },
    axes: [
      {
        ...axis,
        size: 32,
        values: (_chart, at) => at.map((seconds) => time(seconds * 1_000).slice(-8, -3)),
      },
      { ...axis, size: 48 },
    ],
    series: [
      {},
      {
        label: "started",
        stroke: () => colour("--accent"),
        fill: () => colour("--accent-soft"),
        width: 1.5,
        points: { show: false },
      },
      {
        label: "cap",
        paths: uPlot.paths.stepped({ align: 1 }),
        stroke: () => colour("--cap"),
        width: 1.5,
        dash: [5, 4],
        points: { show: false },
      },
    ],
    hooks: { draw: [(chart) => drawMarks(chart, place.marks, colour("--mark"))] },
  };
  place.chart = new uPlot(options, data, place);
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", `Calls a second of ${status.name} beside its cap`);
  const watch = new ResizeObserver(() => {
    if (!place.isConnected) watch.disconnect();
    else place.chart.setSize({ width: place.clientWidth, height: 220 });
  });
  watch.observe(place);
}

function dataOf({ status, history, changes, sinceMs, capOf }) {
  const { stepMs, points } = history;
  const startMs = Math.ceil(sinceMs / stepMs) * stepMs;
  const endMs = Math.floor(Date.now() / stepMs) * stepMs;
  const byStep = new Map(points.map(({ atMs, started }) => [atMs, started]));
  const [times, rates, caps] = [[], [], []];
  const steps = capSteps(status, changes, capOf);
  for (let atMs = startMs; atMs < endMs; atMs += stepMs) {
    times.push(atMs / 1_000);
    rates.push(((byStep.get(atMs) ?? 0) * 1_000) / stepMs);
    caps.push(steps.find((step) => atMs >= step.fromMs)?.cap ?? null);
  }
  return [times, rates, caps];
}

/** Which cap was in force since when, the newest first. */
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

function drawMarks({ ctx, bbox, valToPos }, marks, colour) {
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.fillStyle = colour;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([]);
  for (const { atMs } of marks) {
    const x = Math.round(valToPos(atMs / 1_000, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.beginPath();
    ctx.arc(x, bbox.top, 3 * devicePixelRatio, 0, 7);
    ctx.fill();
  }
  ctx.restore();
}
