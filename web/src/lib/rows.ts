/** The rows of the jobs page: jobs, and arrays in place of their tasks, in the order of the server's answers. */
import type { Job, JobArray } from "../api/types";

export interface JobRow {
  readonly id: string;
  readonly job: Job;
}

export interface ArrayRow {
  readonly id: string;
  readonly array: JobArray;
}

export type Row = JobRow | ArrayRow;

export const isJob = (row: Row): row is JobRow => "job" in row;
const submitted = (row: Row): number => (isJob(row) ? row.job.submitted_at : row.array.submitted_at);

/** One list of an answer's jobs and arrays; arrays stand where their submission does. */
export function rowsOf(answer: { jobs: readonly Job[]; arrays?: readonly JobArray[] }): Row[] {
  const jobs: Row[] = answer.jobs.map((job) => ({ id: job.id, job }));
  const arrays: Row[] = (answer.arrays ?? []).map((array) => ({ id: array.id, array }));
  if (arrays.length === 0) return jobs;
  return [...jobs, ...arrays].sort((a, b) => submitted(b) - submitted(a) || (a.id < b.id ? 1 : -1));
}

/** What is known after the page at `start` was read again: rows that came are in, rows that left are out, and what
 * follows the page stays. A page that shares nothing with what was known ends the list: `cut` says so. */
export function merge(known: readonly Row[], start: number, fresh: readonly Row[]): { rows: Row[]; cut: boolean } {
  const ids = new Set(fresh.map((row) => row.id));
  let last = -1;
  for (let i = known.length - 1; i >= start && last < 0; i--) {
    const row = known[i];
    if (row && ids.has(row.id)) last = i;
  }
  const before = known.slice(0, start).filter((row) => !ids.has(row.id));
  const after = last < 0 ? [] : known.slice(last + 1).filter((row) => !ids.has(row.id));
  return { rows: [...before, ...fresh, ...after], cut: last < 0 && known.length > start };
}

/** How long a job waited so far, and ran. */
export function waitedS(job: Job, now: number): number {
  return (job.waited_s ?? 0) + (job.state === "QUEUED" ? Math.max(0, now - job.queued_at) : 0);
}

export function ranS(job: Job, now: number): number | null {
  if (job.started_at == null) return null;
  return (job.ran_s ?? 0) + (job.running_at == null ? 0 : Math.max(0, now - job.running_at));
}

/** The line that says how a job is: why it waits, how far it is, or how it ended. */
export function noteOf(job: Job): string {
  const reason = (job.reason as { text?: unknown } | null | undefined)?.text;
  if (job.state === "QUEUED") return typeof reason === "string" ? reason.replace(/^waits: /, "") : "";
  if (job.state === "FAILED") return [job.error_code?.split("-")[0], job.message].filter(Boolean).join(": ");
  const progress = progressOf(job);
  if (progress) return progress;
  return job.state === "SUCCEEDED" ? "" : (job.message ?? "");
}

export function progressOf(job: Job): string {
  const { step, total } = (job.progress ?? {}) as { step?: unknown; total?: unknown };
  if (typeof step !== "number") return "";
  return typeof total === "number" && total > 0 ? `step ${step} of ${total}` : `step ${step}`;
}

/** What would happen to the chosen jobs, for the question before it. */
export function tally(jobs: readonly Job[]): { running: number; waiting: number; suspended: number } {
  const count = (test: (state: string) => boolean): number => jobs.filter((job) => test(job.state)).length;
  return {
    running: count((state) => !["QUEUED", "SUSPENDED", "SUCCEEDED", "FAILED", "CANCELLED"].includes(state)),
    waiting: count((state) => state === "QUEUED"),
    suspended: count((state) => state === "SUSPENDED"),
  };
}
