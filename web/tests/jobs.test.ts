import { describe, expect, it } from "vitest";
import type { Job, JobArray } from "../src/api/types";
import { folds, isFiltered, jobQuery, looksLikeId, matches, NONE, pattern, readFilters, writeFilters, type Filters } from "../src/lib/filters";
import { merge, noteOf, ranS, rowsOf, tally, waitedS, type Row } from "../src/lib/rows";
import { canCancel, canResume, canSuspend, countGroups, groupOf } from "../src/lib/states";
import { find } from "../src/lib/palette";

const job = (id: string, more: Partial<Job> = {}): Job => ({ id, name: id, state: "QUEUED", submitted_at: 0, queued_at: 0, ...more }) as Job;
const row = (id: string): Row => ({ id, job: job(id) });
const ids = (rows: readonly Row[]): string => rows.map((one) => one.id).join("");

describe("filters", () => {
  const some: Filters = { group: "failed", tenant: "a b", jobClass: "guaranteed", search: "x*", order: "ran", array: { id: "j-1", name: "sweep" }, unfolded: true };
  it("survive the address", () => {
    expect(readFilters(new URLSearchParams(writeFilters(some)))).toEqual(some);
    expect(writeFilters(NONE)).toBe("");
    expect(readFilters(new URLSearchParams(""))).toEqual(NONE);
  });
  it("ignore nonsense in the address", () => {
    const read = readFilters(new URLSearchParams("state=constructor&sort=evil&array=%00"));
    expect(read).toEqual(NONE);
    expect(isFiltered(read)).toBe(false);
  });
  it("ask the API", () => {
    expect(jobQuery(NONE, 50)).toEqual({ limit: 50, fold: true });
    expect(jobQuery({ ...NONE, group: "waiting", search: "net", tenant: "t" }, 50, "j-9")).toEqual({ limit: 50, tenant: "t", before: "j-9", state: ["QUEUED"], name: "*net*" });
    expect(jobQuery({ ...NONE, order: "waited" }, 5)).toEqual({ limit: 5, sort: "waited" });
    expect(folds({ ...NONE, tenant: "t" })).toBe(true);
  });
  it("know patterns and ids", () => {
    expect(pattern(" a ")).toBe("*a*");
    expect(pattern("a?")).toBe("a?");
    expect(looksLikeId("j-0tn7tg25adp7")).toBe(true);
    expect(looksLikeId("j-x")).toBe(false);
  });
  it("keep to an array and a class", () => {
    expect(matches({ ...NONE, array: { id: "j-1", name: "s" } }, { priority_class: "guaranteed", array_id: "j-2" })).toBe(false);
    expect(matches({ ...NONE, jobClass: "guaranteed" }, { priority_class: "guaranteed" })).toBe(true);
  });
});

describe("rows", () => {
  it("put arrays where they were submitted", () => {
    const array = { id: "B", submitted_at: 5 } as JobArray;
    expect(ids(rowsOf({ jobs: [job("A", { submitted_at: 9 }), job("C", { submitted_at: 1 })], arrays: [array] }))).toBe("ABC");
  });
  it("take in new ones and let go of those that left", () => {
    const known = [..."abcdef"].map(row);
    expect(ids(merge(known, 0, [..."xab"].map(row)).rows)).toBe("xabcdef");
    expect(ids(merge(known, 0, [..."ac"].map(row)).rows)).toBe("acdef");
    expect(ids(merge(known, 2, [..."ce"].map(row)).rows)).toBe("abcef");
    expect(merge(known, 0, [..."xyz"].map(row))).toEqual({ rows: [..."xyz"].map(row), cut: true });
    expect(ids(merge(known, 6, [..."gh"].map(row)).rows)).toBe("abcdefgh");
    expect(merge([], 0, []).rows).toEqual([]);
  });
  it("never hold a row twice", () => {
    const known = [..."abcdef"].map(row);
    const { rows } = merge(known, 3, [..."fba"].map(row));
    expect(new Set(rows.map((one) => one.id)).size).toBe(rows.length);
  });
  it("tell how long", () => {
    expect(waitedS(job("a", { waited_s: 5, queued_at: 100 }), 110)).toBe(15);
    expect(ranS(job("a", { state: "RUNNING", started_at: 100, running_at: 100, ran_s: 0 }), 110)).toBe(10);
    expect(ranS(job("a", { state: "RUNNING", started_at: 10, running_at: 100, ran_s: 50 }), 110)).toBe(60);
    expect(ranS(job("a", { state: "QUEUED", started_at: 10, running_at: null, ran_s: 50 }), 110)).toBe(50);
    expect(ranS(job("a", { started_at: null }), 110)).toBeNull();
  });
  it("tell how it is", () => {
    expect(noteOf(job("a", { reason: { text: "waits: needs 2" } as never }))).toBe("needs 2");
    expect(noteOf(job("a", { state: "FAILED", error_code: "U101-exit-code", message: "left" }))).toBe("U101: left");
    expect(noteOf(job("a", { state: "RUNNING", progress: { step: 3, total: 9 } }))).toBe("step 3 of 9");
  });
  it("are counted before something is done to them", () =>
    expect(tally([job("a"), job("b", { state: "RUNNING" }), job("c", { state: "SUSPENDED" }), job("d", { state: "FAILED" })])).toEqual({ running: 1, waiting: 1, suspended: 1 }));
});

describe("states", () => {
  it("are grouped and counted", () => {
    expect(groupOf("STORING")).toBe("running");
    expect(countGroups({ RUNNING: 2, STORING: 1, QUEUED: 4 })).toMatchObject({ all: 7, running: 3, waiting: 4, failed: 0 });
  });
  it("allow what the server allows", () => {
    expect([canCancel("FAILED"), canCancel("QUEUED"), canSuspend("SUSPENDED"), canResume("SUSPENDED")]).toEqual([false, true, false, true]);
  });
});

describe("the palette", () => {
  const items = [{ label: "Nodes", kind: "page" }, { label: "New job", kind: "do" }, { label: "my-nodes", kind: "service" }];
  it("ranks beginnings before middles", () => expect(find(items, "no", 5).map((one) => one.label)).toEqual(["Nodes", "my-nodes"]));
  it("needs every word", () => expect(find(items, "new xyz", 5)).toEqual([]));
  it("shows all when nothing is typed", () => expect(find(items, " ", 2)).toHaveLength(2));
});
