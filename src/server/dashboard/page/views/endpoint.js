/** One endpoint: how it is, and its last attempts; it can be disabled, and enabled. */
import { ask } from "../parts/api.js";
import { h } from "../parts/dom.js";
import { openForm } from "../parts/form.js";
import { ago, count, duration } from "../parts/format.js";
import { badge, button, crumb, nothing, settingsPanel, table, tile, when } from "../parts/parts.js";
import { health } from "./endpoints.js";

export function endpointView({ sender, tenant, id, redraw, stay, mayAct }) {
  const path = `api/v1/endpoints/${[sender, tenant, id].map(encodeURIComponent).join("/")}`;
  const shown = stay(`endpoint ${path}`, { answers: false });

  return {
    title: `${tenant} / ${id}`,
    load: (signal) => ask(`${path}?data=${shown.answers && mayAct()}`, { signal }),
    draw({ endpoint, attempts }) {
      return [
        crumb("#/endpoints", "Endpoints"),
        h(
          "div.head",
          {},
          h(
            "div",
            {},
            h("h1", {}, `${tenant} / ${id}`),
            h("p.muted", {}, h("code", {}, endpoint.url), health(endpoint)),
            endpoint.description === undefined ? undefined : h("p", {}, endpoint.description),
          ),
          actions(endpoint),
        ),
        tiles(endpoint),
        settingsPanel(
          endpoint.ordered ? "Limits, one after another" : "Limits",
          endpoint.status.limits,
          "It has no limits.",
          { own: () => badge("info", "its own") },
        ),
        h(
          "section.panel",
          { "aria-label": "Attempts" },
          h("div.tools", {}, h("h2", {}, "Last attempts"), answers()),
          table(
            "Attempts",
            ["When", "Message", "#Attempt", "Came to", "#Took", "Why"],
            attempts.map(attempt),
            "Nothing was sent to it yet.",
            "cards",
          ),
        ),
      ];
    },
  };

  /** What an endpoint answers may be private: it is asked for only if somebody wants to see it, who may act. */
  function answers() {
    if (!mayAct()) return undefined;
    const toggle = () => {
      shown.answers = !shown.answers;
      redraw();
    };
    const pressed = String(shown.answers);
    return button(shown.answers ? "Hide answers" : "Show answers", toggle, {
      "aria-pressed": pressed,
    });
  }

  function actions({ disabled, status }) {
    if (!mayAct()) return h("p.muted", {}, "Your token may only look.");
    const isHeld = disabled !== undefined || status.leftAloneForMs > 0;
    return h(
      "div.actions",
      {},
      isHeld
        ? h("button.primary", { type: "button", onclick: () => enable(status) }, "Send again")
        : undefined,
      disabled === undefined ? button("Disable", () => disable(status)) : undefined,
    );
  }

  function form(action, preview) {
    const words = () => ({ name: `${tenant} / ${id}` });
    const inverse = action === "disable" ? "enable" : undefined;
    openForm(`endpoint.${action}`, { path, inverse, redraw, words, preview });
  }

  function disable({ waiting }) {
    form(
      "disable",
      () =>
        `Nothing more is sent to it. ${waiting === 0 ? "Nothing waits for it now." : `The ${count(waiting)} that wait fail, and can be recovered by the sender.`}`,
    );
  }

  function enable({ waiting }) {
    form(
      "enable",
      () =>
        `It is sent to at once, as if it had never failed. ${waiting === 0 ? "Nothing waits for it now." : `${count(waiting)} wait for it.`}`,
    );
  }
}

function tiles(endpoint) {
  const { status } = endpoint;
  const { failures, failingSinceMs, leftAloneForMs, waiting, attemptsInLastMinute } = status;
  return h(
    "div.tiles",
    {},
    tile("Waiting", count(waiting), {
      note: waiting === 0 ? "nothing is due" : "messages that are due",
    }),
    tile("In the last minute", count(attemptsInLastMinute), { note: "attempts ended" }),
    tile("Failed in a row", count(failures), {
      tone: failures > 0 ? "warn" : undefined,
      note:
        failingSinceMs === undefined
          ? "the last one was well"
          : `for ${ago(failingSinceMs).replace(" ago", "")}`,
    }),
    tile("Left alone for", leftAloneForMs > 0 ? duration(leftAloneForMs) : "–", {
      tone: leftAloneForMs > 0 ? "warn" : undefined,
      note: leftAloneForMs > 0 ? "then one message tries" : "it is sent to",
    }),
  );
}

function attempt({
  atMs,
  message,
  attempt: number,
  outcome,
  status,
  durationMs,
  error,
  answer,
  by,
}) {
  const isWell = outcome === "success";
  const said = status === undefined ? outcome : `${outcome} ${status}`;
  return [
    when(atMs),
    [
      h("code", {}, message),
      by === undefined ? undefined : h("div.muted.small", {}, `replayed by ${by}`),
    ],
    count(number),
    badge(isWell ? "good" : "warn", said),
    duration(durationMs),
    error === undefined && !answer
      ? nothing()
      : h(
          "div",
          {},
          error === undefined ? undefined : h("span", {}, error),
          answer ? h("pre", { tabindex: 0 }, answer) : undefined,
        ),
  ];
}
