/** How a service does against its objective, and how its traffic is split. */
import type { Service } from "../api/types";
import { duration, number } from "./format";

export interface Objective {
  readonly text: string;
  readonly mood: "" | "good" | "bad";
}

export function objectiveOf(service: Pick<Service, "slo_p99_s" | "traffic">): Objective | null {
  const goal = service.slo_p99_s;
  if (goal == null) return null;
  const p99 = service.traffic?.p99_s;
  const text = `P99 ≤ ${duration(goal)}`;
  if (p99 == null) return { text, mood: "" };
  return { text, mood: p99 <= goal ? "good" : "bad" };
}

const CAUSES: Readonly<Record<string, string>> = {
  "rate-limit": "above the rate limit",
  deadline: "could not be done in time",
  late: "waited too long",
  "early-drop": "would have held back others",
  "no-gap": "found no gap between guaranteed work",
};

/** Why requests were refused, the most frequent cause first. */
export function causesOf(causes: Readonly<Record<string, number>> | undefined): string {
  const found = Object.entries(causes ?? {}).sort(([, one], [, other]) => other - one);
  return found.map(([cause, count]) => `${number(count)} ${CAUSES[cause] ?? cause}`).join(", ");
}

export interface Split {
  readonly model: string;
  readonly parts: readonly { readonly version: string; readonly share: number }[];
}

/** The traffic's shares by model and version, from the manifest's routes. */
export function splitsOf(manifest: Record<string, unknown> | undefined): Split[] {
  const routes = manifest?.["routes"];
  if (typeof routes !== "object" || routes === null) return [];
  return Object.entries(routes).flatMap(([model, route]) => {
    const shares = (route as { shares?: unknown } | null)?.shares;
    if (typeof shares !== "object" || shares === null) return [];
    const found = Object.entries(shares).filter((one): one is [string, number] => typeof one[1] === "number" && one[1] > 0);
    const whole = found.reduce((sum, [, part]) => sum + part, 0);
    return whole > 0 ? [{ model, parts: found.map(([version, part]) => ({ version, share: part / whole })) }] : [];
  });
}

export interface Sample {
  readonly at: number;
  readonly p50_s: number | null;
  readonly p99_s: number | null;
  readonly rate: number;
}

/** What the server has sampled, and what the page has seen since: the newest sample is at most seconds old. */
export function withNewest(samples: readonly Sample[], seen: Sample | null): readonly Sample[] {
  const last = samples[samples.length - 1];
  return seen && (!last || seen.at - last.at > 1) ? [...samples, seen] : samples;
}

/** The part of the samples with requests whose P99 kept the objective; null where there were none. */
export function kept(samples: readonly Sample[], goal_s: number): number | null {
  const measured = samples.filter((one) => one.p99_s !== null);
  return measured.length > 0 ? measured.filter((one) => (one.p99_s ?? 0) <= goal_s).length / measured.length : null;
}
