/** The playground: controls, and a time line for Sluice and for each model. */
import { simulate as simulateBucket } from "sluice/simulate";
import { drawDots, type Colors, type Dot } from "./picture.ts";
import {
  drawCalls,
  END_MS,
  figuresOf,
  policyOf,
  runAll,
  type Figures,
  type Run,
  type Simulate,
} from "./runs.ts";
import { EXAMPLES, FIELDS, hasSettings, readLink, writeLink, type Settings } from "./settings.ts";

const simulate = simulateBucket as unknown as Simulate;

const GROUPS: readonly { readonly title: string; readonly names: readonly (keyof Settings)[] }[] = [
  { title: "Limits", names: ["rate", "burst", "perTenant", "concurrency"] },
  { title: "Processes and tenants", names: ["replicas", "tenants", "loud"] },
  { title: "Calls", names: ["traffic", "together", "seed"] },
  { title: "API", names: ["api", "dip"] },
];

interface Row {
  readonly canvas: HTMLCanvasElement;
  readonly dots: readonly Dot[];
}

/** Fills an element with the playground. Returns a function that stops it. */
export function openPlayground(root: HTMLElement): () => void {
  let settings = readLink(location.hash);
  let rows: readonly Row[] = [];
  let nowMs = END_MS;
  let frame = 0;
  let updating = 0;

  const form = element("form", { className: "pg-form" });
  const results = element("div", { className: "pg-results" });
  const code = element("code");
  const play = element("button", { type: "button", className: "pg-main", textContent: "Play" });
  const share = element("button", { type: "button", textContent: "Copy link" });
  const said = element("p", { className: "pg-said", role: "status" });
  const buttons = element("div", { className: "pg-buttons" }, [play, share]);
  const codeBlock = element("pre", { className: "pg-code", tabIndex: 0 }, [code]);
  root.replaceChildren(examples(), form, codeBlock, buttons, said, results);
  fillForm();
  update();

  function examples(): HTMLElement {
    const choices = EXAMPLES.map((example) => {
      const button = element("button", { type: "button", textContent: example.name });
      button.addEventListener("click", () => choose(example.settings));
      return button;
    });
    const label = { className: "pg-buttons", role: "group", ariaLabel: "Examples" };
    return element("div", label, choices);
  }

  function choose(chosen: Settings): void {
    settings = chosen;
    fillForm();
    updateLink();
    update();
  }

  function updateLink(): void {
    const address = `${location.pathname}${location.search}${writeLink(settings)}`;
    history.replaceState(history.state, "", address);
  }

  function fillForm(): void {
    form.replaceChildren(
      ...GROUPS.map(({ title, names }) =>
        element("fieldset", {}, [element("legend", { textContent: title }), ...names.map(control)]),
      ),
    );
  }

  function control(name: keyof Settings): HTMLElement {
    const { label, least, most, step = 1, show } = FIELDS[name];
    const text = element("span", { textContent: label });
    const value = element("b");
    const input = element("input", { name });
    const isSwitch = least === 0 && most === 1;
    if (isSwitch) {
      Object.assign(input, { type: "checkbox", checked: settings[name] === 1 });
    } else {
      Object.assign(input, { type: "range", min: least, max: most, step });
      input.value = String(settings[name]);
      showValue();
    }

    function showValue(): void {
      value.textContent = show(settings[name]);
      input.setAttribute("aria-valuetext", show(settings[name]));
    }

    input.addEventListener("input", () => {
      const chosen = isSwitch ? Number(input.checked) : Number(input.value);
      settings = { ...settings, [name]: chosen };
      updateLink();
      if (!isSwitch) showValue();
      updateSoon();
    });
    if (isSwitch) return element("label", { className: "pg-switch" }, [input, text]);
    return element("label", {}, [element("span", {}, [text, value]), input]);
  }

  /** Runs once for all steps of a slider within a frame. */
  function updateSoon(): void {
    cancelAnimationFrame(updating);
    updating = requestAnimationFrame(update);
  }

  function update(): void {
    stop();
    const ofFirst = form.elements.namedItem("loud") as HTMLInputElement;
    ofFirst.disabled = settings.tenants === 1;
    code.textContent = `sluice.bucket("api", ${codeOf(policyOf(settings))});`;
    const arrivals = drawCalls(settings).map((call) => ({ ...call, isRefused: false }));
    const runs = runAll(settings, simulate);
    const figures = runs.map(figuresOf);
    const top = row("Calls arrive", "In all processes together", arrivals, [
      ["arrive", String(arrivals.length)],
    ]);
    const others = runs.map((run, index) =>
      row(
        run.name,
        run.about,
        run.departures,
        labelled(figures[index]!),
        figures[index]!.worstSecond > settings.rate + settings.burst,
      ),
    );
    results.replaceChildren(legend(), ...[top, ...others].map(({ section }) => section), scale());
    rows = [top, ...others];
    said.textContent = sentenceOf(runs[0]!, figures[0]!);
    draw();
  }

  function row(
    name: string,
    about: string,
    dots: readonly Dot[],
    figures: readonly (readonly [string, string])[],
    isOver = false,
  ): Row & { readonly section: HTMLElement } {
    const canvas = element("canvas", { role: "img" });
    const values = figures.map(([label, value]) => `${label}: ${value}`).join(", ");
    canvas.setAttribute("aria-label", `${name}: a time line of 12 seconds. ${values}.`);
    const list = element(
      "dl",
      {},
      figures.map(([label, value]) => {
        const isHot = (isOver && label === WORST) || (label === REFUSED && value !== "0");
        return element("div", { className: isHot ? "pg-hot" : "" }, [
          element("dt", { textContent: label }),
          element("dd", { textContent: value }),
        ]);
      }),
    );
    const head = element("div", { className: "pg-head" }, [
      element("h2", { textContent: name }),
      element("span", { textContent: about }),
    ]);
    const section = element("section", { className: "pg-row" }, [head, canvas, list]);
    section.dataset["name"] = name;
    return { canvas, dots, section };
  }

  function legend(): HTMLElement {
    const names = Array.from({ length: settings.tenants }, (_, index) =>
      element("li", { className: `pg-tenant-${index + 1}`, textContent: `Tenant ${index + 1}` }),
    );
    const tenants = settings.tenants > 1 ? names : [];
    const refused = element("li", { className: "pg-refused", textContent: "Refused with a 429" });
    return element("ul", { className: "pg-legend" }, [...tenants, refused]);
  }

  function draw(): void {
    const colors = readColors(root);
    for (const { canvas, dots } of rows) drawDots(canvas, dots, { endMs: END_MS, nowMs, colors });
  }

  function stop(): void {
    cancelAnimationFrame(frame);
    frame = 0;
    nowMs = END_MS;
    play.textContent = "Play";
  }

  function start(): void {
    play.textContent = "Stop";
    const startedMs = performance.now();
    const next = (): void => {
      nowMs = performance.now() - startedMs;
      if (nowMs >= END_MS) stop();
      else frame = requestAnimationFrame(next);
      draw();
    };
    next();
  }

  play.addEventListener("click", () => {
    if (frame === 0) return start();
    stop();
    draw();
  });
  share.addEventListener("click", () => {
    updateLink();
    void copy(location.href).then(
      () => (said.textContent = "The link is copied."),
      () => (said.textContent = "The browser did not allow a copy. The address bar has the link."),
    );
  });
  const followLink = (): void => {
    if (hasSettings(location.hash)) choose(readLink(location.hash));
  };
  const size = new ResizeObserver(draw);
  const theme = new MutationObserver(draw);
  size.observe(results);
  theme.observe(document.documentElement, { attributeFilter: ["class"] });
  addEventListener("hashchange", followLink);
  return () => {
    stop();
    cancelAnimationFrame(updating);
    size.disconnect();
    theme.disconnect();
    removeEventListener("hashchange", followLink);
  };
}

/** @throws if the browser has no clipboard, or does not allow it. */
async function copy(text: string): Promise<void> {
  await navigator.clipboard.writeText(text);
}

const WORST = "most in one second";
const REFUSED = "refused";

function labelled(figures: Figures): readonly (readonly [string, string])[] {
  const { left, waiting, refused, worstSecond, medianMs, p99Ms, quietMs } = figures;
  return [
    ["started", String(left)],
    ["still waiting", String(waiting)],
    [WORST, String(worstSecond)],
    [REFUSED, String(refused)],
    ["median wait", time(medianMs)],
    ["99 % waited up to", time(p99Ms)],
    ...(quietMs === undefined ? [] : [["median wait of other tenants", time(quietMs)] as const]),
  ];
}

function sentenceOf({ name }: Run, { left, worstSecond, refused }: Figures): string {
  return `${name}: ${left} calls started, at most ${worstSecond} in one second. The API refused ${refused}.`;
}

function time(ms: number): string {
  return ms < 1_000 ? `${Math.round(ms)} ms` : `${(ms / 1_000).toFixed(1)} s`;
}

/** An object as code: `{ rate: "50/s", burst: 5 }`. */
function codeOf(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const entries = Object.entries(value).map(([name, each]) => `${name}: ${codeOf(each)}`);
  return `{ ${entries.join(", ")} }`;
}

function scale(): HTMLElement {
  const marks = Array.from({ length: 7 }, (_, index) =>
    element("span", { textContent: `${2 * index} s` }),
  );
  return element("div", { className: "pg-scale", ariaHidden: "true" }, marks);
}

function readColors(root: HTMLElement): Colors {
  const style = getComputedStyle(root);
  const read = (name: string): string => style.getPropertyValue(`--pg-${name}`).trim();
  return {
    tenants: [1, 2, 3, 4].map((index) => read(`tenant-${index}`)),
    refused: read("refused"),
    line: read("line"),
    text: read("text"),
  };
}

function element<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  properties: Partial<HTMLElementTagNameMap[Name]> = {},
  children: readonly Node[] = [],
): HTMLElementTagNameMap[Name] {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}
