/** A job's life line from its events: what it waited for and how each attempt went. */
import type { Attempt, Event, JobDetail } from "../api/types";
import { ended, toneOf } from "./states";
import type { SpanGiven } from "./timeline";

const MOODS: Record<string, string> = { good: "good", bad: "bad", warning: "warning", active: "active", waiting: "waiting" };

export function lifeOf(events: readonly Event[], job: { state: string }): SpanGiven[] {
  const steps = events.filter((one) => one.new_state && (one.new_state !== one.old_state || one.kind === "job.submitted"));
  const spans: SpanGiven[] = [];
  steps.forEach((step, place) => {
    const state = step.new_state ?? "";
    if (ended(state)) return;
    const next = steps[place + 1];
    const end = next ? next.at : ended(job.state) ? step.at : null;
    if (end !== null && end - step.at < 1e-6) return;
    const waits = state === "QUEUED" || state === "SUSPENDED";
    const lane = waits || step.attempt == null ? "Queue" : `Attempt ${step.attempt}`;
    spans.push({ lane, name: state.charAt(0) + state.slice(1).toLowerCase(), start: step.at, end, mood: MOODS[toneOf(state)] ?? "plain" });
  });
  return spans;
}

/** How an attempt ended, in words. */
export function outcomeOf(attempt: Attempt): string {
  if (attempt.ended_at == null) return "goes on";
  return [attempt.outcome, attempt.error_code, attempt.message].filter(Boolean).join(": ");
}

export interface RankUse {
  readonly rank: number;
  readonly node: string;
  readonly devices: readonly string[];
  readonly peakBytes: number | null;
  readonly exit: string;
}

export function rankUses(attempt: Attempt | undefined): RankUse[] {
  const told = new Map((attempt?.ranks ?? []).map((one) => [(one as { rank?: number }).rank ?? 0, one as Record<string, unknown>]));
  const placed = attempt?.placement ?? [];
  const ranks = placed.length > 0 ? placed : [...told.keys()].map((rank) => ({ rank, node: "", devices: [] }));
  return ranks.map(({ rank, node, devices }) => {
    const one = told.get(rank) ?? {};
    const exit = one["signal"] != null ? `signal ${String(one["signal"])}` : one["exit_code"] != null ? `exit code ${String(one["exit_code"])}` : one["lost"] ? "lost" : "";
    const peak = one["memory_bytes"];
    return { rank, node: node || String(one["node"] ?? ""), devices: devices ?? [], peakBytes: typeof peak === "number" ? peak : null, exit };
  });
}

/** How often it was tried again, and by whose fault. */
export function retriesOf(job: Pick<JobDetail, "retries">): string {
  const found = Object.entries(job.retries ?? {}).filter(([, count]) => count > 0);
  return found.map(([fault, count]) => `${count} × ${fault}`).join(", ");
}
