/** The board: chooses the view for the URL, and refreshes it. */
import { ask } from "./parts/api.js";
import { bucketView } from "./views/bucket.js";
import { bucketsView } from "./views/buckets.js";
import { endpointView } from "./views/endpoint.js";
import { endpointsView } from "./views/endpoints.js";
import { h, morph, morphChildren } from "./parts/dom.js";
import { field } from "./parts/form.js";
import { time } from "./parts/format.js";
import { jobView } from "./views/job.js";
import { keyView } from "./views/key.js";
import { logView } from "./views/log.js";
import { queueView } from "./views/queue.js";
import { queuesView } from "./views/queues.js";
import { workersView } from "./views/workers.js";

const EVERY_MS = 2_000;
/** A proxy can serve the board below another path, which only the page knows. The session cookie needs that path. */
const SESSION = `api/v1/session?${new URLSearchParams({ path: new URL(".", location).pathname })}`;
const TABS = [
  ["#/", "Buckets", /^#\/((bucket|key|member)\/|$)/],
  ["#/queues", "Queues", /^#\/(queues|queue|job)(\/|$)/],
  ["#/workers", "Workers", /^#\/workers$/],
  ["#/endpoints", "Endpoints", /^#\/endpoints?(\/|$)/],
  ["#/changes", "Changes", /^#\/changes$/],
];

const main = document.getElementById("main");
const kept = new Map();
let session;
let state = "loading";
let view;
let timer;
let loading = new AbortController();

const parts = {
  redraw: () => void refresh(),
  /** The state of a view, which stays while another view is shown. */
  stay(name, first) {
    if (!kept.has(name)) kept.set(name, first);
    return kept.get(name);
  },
  mayAct: () => session?.role === "act",
};

const PAGES = {
  "#/queues": queuesView,
  "#/workers": workersView,
  "#/endpoints": endpointsView,
  "#/changes": logView,
};

function viewOf(hash) {
  const [, kind, encoded] = /^#\/(bucket|key|member|queue|job|endpoint)\/(.+)$/.exec(hash) ?? [];
  if (kind === undefined) return (PAGES[hash] ?? bucketsView)(parts);
  if (kind === "bucket") return bucketView({ ...parts, name: decodeURIComponent(encoded) });
  if (kind === "key" || kind === "member") {
    const [name, ...names] = encoded.split("/").map(decodeURIComponent);
    return keyView({ ...parts, kind, name, names });
  }
  if (kind === "queue") return queueView({ ...parts, name: decodeURIComponent(encoded) });
  if (kind === "job") {
    const [queue, id = ""] = encoded.split("/").map(decodeURIComponent);
    return jobView({ ...parts, queue, id });
  }
  const [sender, tenant = "", id = ""] = encoded.split("/").map(decodeURIComponent);
  return endpointView({ ...parts, sender, tenant, id });
}

async function refresh() {
  clearTimeout(timer);
  loading.abort();
  loading = new AbortController();
  const { signal } = loading;
  const shown = view;
  try {
    session ??= await ask("api/v1/session", { signal });
    const found = await shown.load(signal);
    if (signal.aborted || shown !== view) return;
    state = "live";
    shown.atMs = Date.now();
    say("");
    morphChildren(main, h("div", {}, shown.draw(found)));
    await shown.after?.(found);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 401) return signIn();
    state = "lost";
    // The last view stays, with the text that the user is typing.
    const isKept = shown.atMs !== undefined && (error.status === 0 || error.status >= 500);
    say(isKept ? `${error.message} The page shows the state of ${time(shown.atMs)}.` : "");
    if (!isKept)
      morphChildren(
        main,
        h(
          "div",
          {},
          h("p.alert", { role: "alert" }, error.message),
          error.status === 404 ? h("p", {}, h("a", { href: "#/" }, "All buckets")) : undefined,
        ),
      );
  }
  drawBar();
  if (!document.hidden) timer = setTimeout(refresh, EVERY_MS);
}

function say(text) {
  const place = document.getElementById("lost");
  if (place.textContent !== text) place.textContent = text;
}

function route() {
  say("");
  view = viewOf(location.hash || "#/");
  document.title = `${view.title} · Sluice`;
  drawBar();
  void refresh();
}

function drawBar() {
  const hash = location.hash || "#/";
  const dark =
    document.documentElement.dataset.theme === "dark" ||
    (document.documentElement.dataset.theme === undefined &&
      matchMedia("(prefers-color-scheme: dark)").matches);
  const states = { live: "Live", lost: "Unreachable", loading: "Loading" };
  morph(
    document.getElementById("bar"),
    h(
      "header.bar",
      { id: "bar" },
      h(
        "a.brand",
        { href: "#/" },
        h("img", { src: "icon.svg", alt: "", width: 22, height: 22 }),
        "Sluice",
      ),
      session !== undefined &&
        h(
          "nav",
          { "aria-label": "Views" },
          TABS.map(([href, label, shows]) =>
            h("a", { href, "aria-current": shows.test(hash) ? "page" : false }, label),
          ),
          h("a", { href: "jobs" }, "Jobs"),
        ),
      h("span.grow", {}),
      h(`span.state.${state}`, { role: "status" }, states[state]),
      h(
        "button.plain",
        { type: "button", onclick: () => setTheme(dark ? "light" : "dark") },
        dark ? "Light" : "Dark",
      ),
      session?.signedIn === true
        ? h("button.plain", { type: "button", onclick: signOut }, "Sign out")
        : undefined,
    ),
  );
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("sluice-theme", theme);
  // A chart keeps the colours of the theme in which it was drawn.
  for (const place of document.querySelectorAll(".chart")) place.chart?.redraw();
  drawBar();
}

function signIn() {
  session = undefined;
  state = "loading";
  const problem = h("p.problem", { role: "alert" });
  const form = h(
    "form.sign-in.panel",
    { "data-keep": true },
    h("h1", {}, "Sign in"),
    h(
      "p.muted",
      {},
      "Enter a token of this server. A cookie keeps you signed in for twelve hours.",
    ),
    field(
      "Token",
      h("input", {
        name: "token",
        type: "password",
        required: true,
        autocomplete: "current-password",
      }),
    ),
    problem,
    h("button.primary", { type: "submit" }, "Sign in"),
  );
  form.onsubmit = async (event) => {
    event.preventDefault();
    try {
      const token = new FormData(form).get("token");
      session = await ask(SESSION, { method: "POST", body: { token } });
      route();
    } catch (error) {
      problem.textContent =
        error.status === 401 ? "The server does not accept this token." : error.message;
    }
  };
  main.replaceChildren(form);
  form.elements.token.focus();
  drawBar();
}

async function signOut() {
  await ask(SESSION, { method: "DELETE" });
  signIn();
}

const theme = localStorage.getItem("sluice-theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
// A hidden tab sends no requests.
document.addEventListener("visibilitychange", () =>
  document.hidden ? clearTimeout(timer) : void refresh(),
);
addEventListener("hashchange", () => {
  main.replaceChildren(h("p.empty", {}, "Loading…"));
  route();
  main.focus();
});
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest("input, select, textarea, dialog")) return;
  const search = document.getElementById("search");
  if (search !== null) {
    event.preventDefault();
    search.focus();
  }
});
route();
