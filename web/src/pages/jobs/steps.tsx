/** Cancel, suspend and resume: what is said before, and the requests. */
import { api, ask } from "../../api/client";
import type { Job } from "../../api/types";
import { plural } from "../../lib/format";
import { isJob, tally, type Row } from "../../lib/rows";
import { canCancel, canResume, canSuspend } from "../../lib/states";
import { announce } from "../../live/news";
import { askFirst } from "../../ui/dialog";
import { say } from "../../ui/toast";

export type Step = "cancel" | "suspend" | "resume";

const ALLOWED: Record<Step, (state: string) => boolean> = { cancel: canCancel, suspend: canSuspend, resume: canResume };
const DONE: Record<Step, string> = { cancel: "asked to end", suspend: "asked to suspend", resume: "back in the queue" };
const AT_ONCE = 6;

/** The rows to which the step applies; an array counts if any of its tasks allows it. */
export function allowed(step: Step, rows: readonly Row[]): Row[] {
  return rows.filter((row) =>
    isJob(row) ? ALLOWED[step](row.job.state) : Object.entries(row.array.states ?? {}).some(([state, count]) => count > 0 && ALLOWED[step](state)),
  );
}

async function request(step: Step, row: Row): Promise<void> {
  const params = { path: { ref: row.id }, query: isJob(row) ? { tenant: row.job.tenant } : { tenant: row.array.tenant } };
  const jobs = { cancel: "/v1/jobs/{ref}/cancel", suspend: "/v1/jobs/{ref}/suspend", resume: "/v1/jobs/{ref}/resume" } as const;
  const arrays = { cancel: "/v1/arrays/{ref}/cancel", suspend: "/v1/arrays/{ref}/suspend", resume: "/v1/arrays/{ref}/resume" } as const;
  if (isJob(row)) await ask(api.POST(jobs[step], { params }));
  else await ask(api.POST(arrays[step], { params }));
}

export function askStep(step: Step, rows: readonly Row[], done: () => void): void {
  const targets = allowed(step, rows);
  const jobs = targets.filter(isJob).map((row) => row.job);
  const tasks = targets.reduce((sum, row) => sum + (isJob(row) ? 1 : taskCount(step, row.array.states ?? {})), 0);
  const one = jobs.length === 1 && targets.length === 1 ? jobs[0] : null;
  const name = one ? one.name : plural(tasks, "job");
  const verb = step.charAt(0).toUpperCase() + step.slice(1);
  askFirst({
    title: `${verb} ${name}?`,
    text: <Consequence step={step} jobs={jobs} arrays={targets.length - jobs.length} />,
    act: one ? `${verb} it` : `${verb} ${name}`,
    destructive: step === "cancel",
    run: async () => {
      const failed = await eachOf(targets, (row) => request(step, row));
      announce("jobs", "status");
      done();
      if (failed.length === targets.length && failed[0]) throw failed[0];
      if (failed.length > 0) say(`${plural(failed.length, "row")} of ${targets.length} refused: ${String(failed[0]?.message)}`, "bad");
      else say(`${name}: ${DONE[step]}`);
    },
  });
}

function taskCount(step: Step, states: Record<string, number>): number {
  return Object.entries(states).reduce((sum, [state, count]) => sum + (ALLOWED[step](state) ? count : 0), 0);
}

async function eachOf<T>(all: readonly T[], act: (one: T) => Promise<void>): Promise<Error[]> {
  const failed: Error[] = [];
  const left = [...all];
  const work = async (): Promise<void> => {
    for (let one = left.shift(); one !== undefined; one = left.shift()) {
      try {
        await act(one);
      } catch (error) {
        failed.push(error instanceof Error ? error : new Error(String(error)));
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, all.length) }, work));
  return failed;
}

function Consequence({ step, jobs, arrays }: { step: Step; jobs: readonly Job[]; arrays: number }) {
  const { running, waiting } = tally(jobs);
  const lines: string[] = [];
  if (step === "cancel") {
    if (running) lines.push(`${plural(running, "running job")} ${running === 1 ? "is" : "are"} asked to end: the processes get a signal, their grace time, and are then killed.`);
    if (waiting) lines.push(`${plural(waiting, "waiting job")} ${waiting === 1 ? "leaves" : "leave"} the queue.`);
    if (arrays) lines.push(`All unfinished tasks of ${plural(arrays, "array")} are cancelled.`);
    lines.push("A cancelled job cannot be resumed. Its logs and kept files stay.");
  } else if (step === "suspend") {
    if (running) lines.push(`${plural(running, "running job")} may write a checkpoint, then ${running === 1 ? "gives" : "give"} back what ${running === 1 ? "it holds" : "they hold"}.`);
    if (waiting) lines.push(`${plural(waiting, "waiting job")} ${waiting === 1 ? "leaves" : "leave"} the queue until resumed.`);
    if (arrays) lines.push(`The same for the tasks of ${plural(arrays, "array")}.`);
  } else lines.push("They wait in the queue again, and start from their last checkpoint.");
  return (
    <>
      {lines.map((line) => (
        <p>{line}</p>
      ))}
    </>
  );
}

