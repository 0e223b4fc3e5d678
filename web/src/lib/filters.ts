/** The filters of the jobs page, as they stand in the address, and what they ask of the API. */

import { GROUPS, type Group } from "./states";

export const ORDERS = ["submitted", "started", "ended", "ran", "waited", "name", "state"] as const;
export type Order = (typeof ORDERS)[number];

export interface Filters {
  readonly group: Group | null;
  readonly tenant: string;
  readonly jobClass: string;
  readonly search: string;
  readonly order: Order;
  /** The array whose tasks are listed: its id, and its name, by which the API finds them. */
  readonly array: { readonly id: string; readonly name: string } | null;
  readonly unfolded: boolean;
}

export const NONE: Filters = {
  group: null, tenant: "", jobClass: "", search: "", order: "submitted", array: null, unfolded: false,
};

export function readFilters(query: URLSearchParams): Filters {
  const group = query.get("state") ?? "";
  const order = query.get("sort") ?? "";
  return {
    group: Object.hasOwn(GROUPS, group) ? (group as Group) : null,
    tenant: query.get("tenant") ?? "",
    jobClass: query.get("class") ?? "",
    search: (query.get("q") ?? "").slice(0, 200),
    order: (ORDERS as readonly string[]).includes(order) ? (order as Order) : "submitted",
    array: readArray(query.get("array") ?? ""),
    unfolded: query.get("tasks") === "all",
  };
}

function readArray(text: string): Filters["array"] {
  const found = /^([\w-]+):(.+)$/.exec(text);
  return found?.[1] && found[2] ? { id: found[1], name: found[2] } : null;
}

/** The address' query: only what differs from no filter at all. */
export function writeFilters(filters: Filters): string {
  const query = new URLSearchParams();
  if (filters.group) query.set("state", filters.group);
  if (filters.tenant) query.set("tenant", filters.tenant);
  if (filters.jobClass) query.set("class", filters.jobClass);
  if (filters.search) query.set("q", filters.search);
  if (filters.order !== "submitted") query.set("sort", filters.order);
  if (filters.array) query.set("array", `${filters.array.id}:${filters.array.name}`);
  if (filters.unfolded) query.set("tasks", "all");
  return query.toString();
}

export const isFiltered = (one: Filters): boolean =>
  Boolean(one.group || one.tenant || one.jobClass || one.search || one.array);

/** A name's pattern for the API: what was typed may stand anywhere, unless it has a sign of its own. */
export function pattern(search: string): string {
  const text = search.trim();
  return /[*?]/.test(text) ? text : `*${text}*`;
}

/** An id, or the beginning of one, is looked up instead of searched by name. */
export const looksLikeId = (search: string): boolean => /^j-[0-9a-z]{4,}(-\d+)?$/.test(search.trim());

/** The API folds arrays only where all jobs are listed, newest first. */
export const folds = (one: Filters): boolean =>
  !one.unfolded && !one.group && !one.search && !one.array && !one.jobClass && one.order === "submitted";

export interface JobQuery {
  tenant?: string;
  state?: string[];
  name?: string;
  sort?: Order;
  fold?: boolean;
  limit: number;
  before?: string;
}

export function jobQuery(one: Filters, limit: number, before?: string | null): JobQuery {
  const query: JobQuery = { limit };
  if (one.tenant) query.tenant = one.tenant;
  if (before) query.before = before;
  if (folds(one)) {
    query.fold = true;
    return query;
  }
  if (one.group) query.state = [...GROUPS[one.group]];
  if (one.array) query.name = `${one.array.name}-*`;
  if (one.search) query.name = pattern(one.search);
  if (one.order !== "submitted") query.sort = one.order;
  return query;
}

/** What the API does not filter by. */
export function matches(one: Filters, job: { priority_class: string; array_id?: string | null }): boolean {
  if (one.array && job.array_id !== one.array.id) return false;
  return !one.jobClass || job.priority_class === one.jobClass;
}
