import { ask } from "../parts/api.js";
import { h } from "../parts/dom.js";
import { openForm } from "../parts/form.js";
import { ago, count, duration, outcomeText, plural } from "../parts/format.js";
import {
  badge,
  button,
  crumb,
  nothing,
  pageHead,
  panel,
  settingsPanel,
  table,
  tile,
  when,
} from "../parts/parts.js";
import { health } from "./endpoints.js";

export function endpointView({ sender, tenant, id, redraw, stay, mayAct }) {
  const path = `api/v1/endpoints/${[sender, tenant, id].map(encodeURIComponent).join("/")}`;
  const shown = stay(`endpoint ${path}`, { responses: false });

  return {
    title: `${tenant} / ${id}`,
    load: (signal) => ask(`${path}?data=${shown.responses && mayAct()}`, { signal }),
    draw({ endpoint, attempts }) {
      return [
        crumb("#/endpoints", "Endpoints"),
        pageHead(
          `${tenant} / ${id}`,
          [h("code", {}, endpoint.url), health(endpoint)],
          actions(endpoint),
          endpoint.description !== undefined && h("p", {}, endpoint.description),
        ),
        tiles(endpoint),
        settingsPanel(
          endpoint.ordered ? "Limits (sends in order)" : "Limits",
          endpoint.status.limits,
          "No limits.",
          { own: () => badge("info", "this endpoint") },
        ),
        panel(
          "Last attempts",
          table(
            "Attempts",
            ["Time", "Message", "#Attempt", "Outcome", "#Duration", "Error or response"],
            attempts.map(attempt),
            "No attempts yet.",
          ),
          responsesButton(),
        ),
      ];
    },
  };

  /** Responses may be private. The page requests them only when a user who may act presses the button. */
  function responsesButton() {
    if (!mayAct()) return undefined;
    const toggle = () => {
      shown.responses = !shown.responses;
      redraw();
    };
    const pressed = String(shown.responses);
    return button(shown.responses ? "Hide responses" : "Show responses", toggle, {
      "aria-pressed": pressed,
    });
  }

  function actions({ disabled, status }) {
    if (!mayAct()) return undefined;
    const isStopped = disabled !== undefined || status.pausedForMs > 0;
    return [
      isStopped && button("Resume sending", () => enable(status), { class: "primary" }),
      disabled === undefined && button("Disable", () => disable(status)),
    ];
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
        `The sender stops sending to this endpoint. ${waiting === 0 ? "No message is due now." : `Its ${plural(waiting, "due message")} will fail. The sender can recover them later.`}`,
    );
  }

  function enable({ waiting }) {
    form(
      "enable",
      () =>
        `Sending resumes immediately, and earlier failures no longer count. ${waiting === 0 ? "No message is due now." : `${plural(waiting, "message")} due now.`}`,
    );
  }
}

function tiles(endpoint) {
  const { status } = endpoint;
  const { failures, failingSinceMs, pausedForMs, waiting, attemptsInLastMinute } = status;
  return h(
    "div.tiles",
    {},
    tile("Due messages", count(waiting), { note: "not sent yet" }),
    tile("Attempts", count(attemptsInLastMinute), { note: "in the last minute" }),
    tile("Failures in a row", count(failures), {
      isWarning: failures > 0,
      note:
        failingSinceMs === undefined
          ? "the last attempt succeeded"
          : `since ${ago(failingSinceMs)}`,
    }),
    tile("Backing off for", pausedForMs > 0 ? duration(pausedForMs) : "–", {
      isWarning: pausedForMs > 0,
      note: pausedForMs > 0 ? "then one message is tried" : "sending normally",
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
  const isSuccess = outcome === "success";
  const text = outcomeText(outcome, status);
  return [
    when(atMs),
    [h("code", {}, message), by !== undefined && h("div.muted.small", {}, `replayed by ${by}`)],
    count(number),
    badge(isSuccess ? "good" : "warn", text),
    duration(durationMs),
    error === undefined && !answer
      ? nothing()
      : h(
          "div",
          {},
          error !== undefined && h("span", {}, error),
          answer ? h("pre", { tabindex: 0 }, answer) : undefined,
        ),
  ];
}
