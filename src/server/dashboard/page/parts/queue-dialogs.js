/** What changes a queue. */
import { ask } from "./api.js";
import { forField, open, reasonField } from "./dialogs.js";
import { count, duration, plural } from "./format.js";
import { toast } from "./toast.js";

async function send({ path, redraw }, action, body, said, back) {
  const answer = await ask(`${path}/${action}`, { method: "POST", body });
  redraw();
  const run = async () => {
    const { generation } = answer;
    await ask(`${path}/${back}`, { method: "POST", body: { generation } });
    redraw();
  };
  toast(said(answer), back === undefined ? undefined : { label: "Undo", run });
}

export function pauseQueue(parts) {
  const { name, jobs, generation } = parts.status;
  open({
    title: `Pause ${name}`,
    danger: true,
    fields: [forField(), reasonField()],
    preview: ({ forMs }) =>
      `No job of the queue starts ${forMs ? `for ${duration(Number(forMs))}` : "until it is resumed"}. ${count(jobs.waiting)} wait now; jobs that run go on.`,
    confirm: "Pause the queue",
    make: ({ forMs, reason }) =>
      send(
        parts,
        "pause",
        {
          ...(forMs ? { forMs: Number(forMs) } : {}),
          ...(reason ? { why: reason } : {}),
          generation,
        },
        () => `${name} is paused.`,
        "undo",
      ),
  });
}

export function resumeQueue(parts) {
  const { name, jobs, generation } = parts.status;
  open({
    title: `Resume ${name}`,
    fields: [],
    preview: () => `Jobs start again as the bucket lets them; ${count(jobs.waiting)} wait.`,
    confirm: "Resume",
    make: () => send(parts, "resume", { generation }, () => `${name} runs again.`, "undo"),
  });
}

/** Of one dead letter by its id, or of all. */
export function replay(parts) {
  const { id, many } = parts;
  open({
    title: id === undefined ? "Replay all dead letters" : `Replay ${id}`,
    fields: [],
    preview: () =>
      `${id === undefined ? plural(many, "job") : "The job"} will run again from the first attempt, each on a slot of its own. What they did before, they may do twice. This cannot be undone.`,
    confirm: "Replay",
    make: () =>
      send(
        parts,
        "replay",
        id === undefined ? {} : { id },
        ({ replayed }) => `${plural(replayed, "job")} went back into the queue.`,
      ),
  });
}
