/** Groups of job states as people ask for them, and the tone in which each state is shown. */

export type Tone = "plain" | "good" | "warning" | "bad" | "active" | "waiting";

export const STATES = {
  QUEUED: "waiting", ADMITTED: "active", PLACED: "active", STARTING: "active", DOWNLOADING: "active",
  RUNNING: "good", CHECKPOINTING: "active", STORING: "active", SUCCEEDED: "plain", FAILED: "bad",
  CANCELLED: "plain", SUSPENDED: "warning",
  DEPLOYING: "active", READY: "good", DEGRADED: "warning", STOPPING: "active", STOPPED: "plain", ACTIVE: "good",
} as const satisfies Record<string, Tone>;

export function toneOf(state: string): Tone {
  return Object.hasOwn(STATES, state) ? STATES[state as keyof typeof STATES] : "plain";
}

export const GROUPS = {
  waiting: ["QUEUED"],
  running: ["ADMITTED", "PLACED", "STARTING", "DOWNLOADING", "RUNNING", "CHECKPOINTING", "STORING"],
  suspended: ["SUSPENDED"],
  succeeded: ["SUCCEEDED"],
  failed: ["FAILED"],
  cancelled: ["CANCELLED"],
} as const;

export type Group = keyof typeof GROUPS;
export const GROUP_NAMES = Object.keys(GROUPS) as Group[];

export function groupOf(state: string): Group | null {
  return GROUP_NAMES.find((name) => (GROUPS[name] as readonly string[]).includes(state)) ?? null;
}

/** Which steps a state allows. */
export const ended = (state: string): boolean => ["SUCCEEDED", "FAILED", "CANCELLED"].includes(state);
export const canCancel = (state: string): boolean => !ended(state);
export const canSuspend = (state: string): boolean => !ended(state) && state !== "SUSPENDED";
export const canResume = (state: string): boolean => state === "SUSPENDED";

/** The number of jobs in each group, from the numbers by state. */
export function countGroups(counts: Record<string, number>): Record<Group | "all", number> {
  const found = { all: 0 } as Record<Group | "all", number>;
  for (const name of GROUP_NAMES) {
    found[name] = GROUPS[name].reduce((sum, state) => sum + (counts[state] ?? 0), 0);
    found.all += found[name];
  }
  return found;
}
