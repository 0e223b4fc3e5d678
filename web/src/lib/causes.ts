/** Why a job waits, as a list that starts with what a reader can do something about. */

export interface Cause {
  readonly cause: string;
  readonly blocking: boolean;
  readonly change?: string;
  readonly reason: { readonly code: string; readonly text: string; readonly facts?: Record<string, unknown> };
}

export type Step =
  | { readonly kind: "quota"; readonly tenant: string; readonly limits: Record<string, number> }
  | { readonly kind: "end"; readonly jobs: readonly string[] }
  | { readonly kind: "resume" };

export interface RankedCause {
  readonly title: string;
  readonly text: string;
  readonly blocking: boolean;
  readonly never: boolean;
  /** What would have to be different for this cause to go. */
  readonly change: string;
  /** Commands that the text of the change names, as they are typed. */
  readonly commands: readonly string[];
  readonly steps: readonly Step[];
  readonly jobs: readonly string[];
}

const TITLES: Record<string, string> = {
  quota: "Quota", share: "Fair share", shape: "Free devices", priority: "Order in the queue", impossible: "Fits nowhere",
  array: "Limit of the array", after: "Other jobs first", suspended: "Suspended", backoff: "Wait after a failure",
  round: "Scheduling round", budget: "Budget", inputs: "Inputs", node: "Nodes",
};

export function titleOf(cause: string): string {
  return (Object.hasOwn(TITLES, cause) ? TITLES[cause] : undefined) ?? (cause.charAt(0).toUpperCase() + cause.slice(1)).replaceAll("-", " ");
}

/** Blocking causes first; among them those that a reader can change; those that never end by themselves lead. */
export function rankCauses(causes: readonly Cause[]): RankedCause[] {
  const ranked = causes.map(read);
  const weight = (one: RankedCause): number =>
    (one.blocking ? 0 : 8) + (one.never ? 0 : 4) + (one.steps.length > 0 && one.steps[0]?.kind !== "end" ? 0 : 2);
  return ranked
    .map((one, place) => ({ one, place }))
    .sort((a, b) => weight(a.one) - weight(b.one) || a.place - b.place)
    .map(({ one }) => one);
}

function read(cause: Cause): RankedCause {
  const facts = cause.reason.facts ?? {};
  const change = cause.change ?? "";
  return {
    title: titleOf(cause.cause),
    text: cause.reason.text.replace(/^waits: /, ""),
    blocking: cause.blocking,
    never: cause.reason.code === "impossible" || cause.cause === "impossible",
    change,
    commands: change.match(/shoal [a-z][^;`]*/g)?.map((one) => one.trim()) ?? [],
    steps: stepsOf(facts),
    jobs: idsOf(facts["after"]),
  };
}

function stepsOf(facts: Record<string, unknown>): Step[] {
  const start = facts["to_start"];
  if (typeof start !== "object" || start === null) return [];
  const steps: Step[] = [];
  const { quota, end } = start as { quota?: unknown; end?: unknown };
  if (typeof quota === "object" && quota !== null && typeof facts["tenant"] === "string") {
    const limits = Object.entries(quota).filter((one): one is [string, number] => typeof one[1] === "number");
    if (limits.length > 0) steps.push({ kind: "quota", tenant: facts["tenant"], limits: Object.fromEntries(limits) });
  }
  const jobs = idsOf(end);
  if (jobs.length > 0) steps.push({ kind: "end", jobs });
  return steps;
}

function idsOf(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((one): one is string => typeof one === "string") : [];
}
