/** Which parts of the page an event of the server concerns. */
import type { Topic } from "./news";

const BY_PREFIX: Record<string, readonly Topic[]> = {
  job: ["jobs", "nodes", "tenants", "status"],
  array: ["jobs", "status"],
  service: ["services", "status"],
  node: ["nodes", "status"],
  tenant: ["tenants"],
  token: ["tenants"],
};

/** A batch's topics: those of its kinds of events, and the event list itself. */
export function topicsOf(kinds: Iterable<string>): Set<Topic> {
  const found = new Set<Topic>();
  for (const kind of kinds) {
    found.add("events");
    for (const topic of BY_PREFIX[kind.split(".", 1)[0] ?? ""] ?? ["status"]) found.add(topic);
  }
  return found;
}

export interface Change {
  readonly job_id?: string | null;
  readonly new_state?: string | null;
}

export interface Batch {
  readonly kinds: Readonly<Record<string, number>>;
  readonly dropped: number;
  readonly seq: number;
  readonly events: readonly Change[];
}

/** What the server's stream says, as the page passes it on among its tabs. */
export type Word =
  | { readonly say: "open"; readonly seq: number }
  /** A tab that just came asks how things are. */
  | { readonly say: "ask" }
  | { readonly say: "changes"; readonly batch: Batch }
  | { readonly say: "reset" }
  | { readonly say: "cut" }
  | { readonly say: "over" };
