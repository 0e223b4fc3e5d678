import { describe, expect, it } from "vitest";
import { columns, summaries, thinned, withAverage } from "../src/lib/series";
import { layOut, ticks } from "../src/lib/timeline";
import { commandLine, isNumeric, isOwn, sortRows, spansOf, write } from "../src/lib/view";
import { sharesOf } from "../src/lib/shares";
import { metricLines } from "../src/lib/metrics";
import { causesOf, objectiveOf, splitsOf } from "../src/lib/services";
import { lifeOf, rankUses } from "../src/lib/life";
import { topicsOf } from "../src/live/topics";

describe("a cell", () => {
  it("is written by its unit", () => {
    expect(write(1536, "bytes", 0)).toBe("1.5 KiB");
    expect(write(0.25, "share", 0)).toBe("25 %");
    expect(write(90, "seconds", 0)).toBe("1 min 30 s");
    expect(write(3, "dollars", 0)).toBe("$3.00");
    expect(write(null, "bytes", 0)).toBe("–");
    expect(write(true, "", 0)).toBe("yes");
    expect(write("text", "bytes", 0)).toBe("text");
  });
});

describe("a table", () => {
  const rows = [["b", 2], ["a", null], ["c", 10]] as const;
  it("knows columns of numbers", () => {
    expect(isNumeric(rows, 1)).toBe(true);
    expect(isNumeric(rows, 0)).toBe(false);
    expect(isNumeric([[null]], 0)).toBe(false);
  });
  it("is sorted, with what is absent at the end", () => {
    expect(sortRows(rows, 1, "up").map((one) => one[0])).toEqual(["b", "c", "a"]);
    expect(sortRows(rows, 1, "down").map((one) => one[0])).toEqual(["c", "b", "a"]);
    expect(sortRows([["j10"], ["j9"]], 0, "up")).toEqual([["j9"], ["j10"]]);
  });
});

describe("lines", () => {
  it("share one axis", () =>
    expect(columns([{ name: "a", points: [[1, 10], [3, 30]] }, { name: "b", points: [[2, 5]] }])).toEqual([[1, 2, 3], [10, null, 30], [null, 5, null]]));
  it("are thinned without losing a peak", () => {
    const points = Array.from({ length: 50_000 }, (_, x): [number, number] => [x, x === 33_333 ? 99 : 0]);
    const thin = thinned(points);
    expect(thin.length).toBeLessThanOrEqual(4100);
    expect(thin.some(([x, y]) => x === 33_333 && y === 99)).toBe(true);
    expect(thin.every((one, place) => place === 0 || one[0] > (thin[place - 1]?.[0] ?? 0))).toBe(true);
  });
  it("get an average when they are long", () => {
    expect(withAverage({ name: "a", points: [[1, 1]] })).toHaveLength(1);
    const [raw, average] = withAverage({ name: "a", points: Array.from({ length: 600 }, (_, x): [number, number] => [x, x % 2]) });
    expect(raw?.faint).toBe(true);
    expect(average?.points.at(-1)?.[1]).toBeCloseTo(0.5, 1);
  });
  it("are told in words", () => expect(summaries([{ name: "a", points: [[1, 3], [2, null], [3, 1]] }, { name: "b", points: [] }])).toEqual([{ name: "a", last: 1, least: 1, most: 3 }]));
  it("are made of metrics, one for each attempt", () => {
    const metric = (attempt: number, step: number | null, value: number | null) => ({ attempt, at: 5, step, name: "loss", value });
    const [loss] = metricLines([metric(1, 1, 3), metric(1, 2, 2), metric(2, 2, 1)]);
    expect(loss).toMatchObject({ steps: true, last: 1, lines: [{ name: "attempt 1", points: [[1, 3], [2, 2]] }, { name: "attempt 2" }] });
    expect(metricLines([metric(1, null, 3)])[0]).toMatchObject({ steps: false, lines: [{ points: [[5, 3]] }] });
  });
});

describe("a timeline", () => {
  it("puts spans at the same time in rows of a lane", () => {
    const layout = layOut([{ lane: "a", name: "x", start: 0, end: 10 }, { lane: "a", name: "y", start: 5, end: 8 }, { lane: "b", name: "z", start: 10, end: null }], 20);
    expect(layout.lanes.map((lane) => [lane.name, lane.rows])).toEqual([["a", 2], ["b", 1]]);
    expect(layout.lanes[1]?.placed[0]).toMatchObject({ left: 0.5, width: 0.5 });
  });
  it("has few and round ticks", () => {
    expect(ticks(0, 600, 6)).toEqual([0, 120, 240, 360, 480, 600]);
    expect(ticks(0.2, 0.4, 6)).toEqual([0.2]);
    expect(ticks(0, 86_400 * 400, 6).length).toBeLessThanOrEqual(7);
  });
  it("stands for a job's life", () => {
    const event = (at: number, old_state: string | null, new_state: string, attempt: number | null, kind = "job.state") => ({ at, old_state, new_state, attempt, kind }) as never;
    const spans = lifeOf([event(1, null, "QUEUED", null, "job.submitted"), event(5, "QUEUED", "RUNNING", 1), event(9, "RUNNING", "FAILED", 1)], { state: "FAILED" });
    expect(spans.map((one) => [one.lane, one.name, one.start, one.end])).toEqual([["Queue", "Queued", 1, 5], ["Attempt 1", "Running", 5, 9]]);
  });
  it("of a component has moods", () => expect(spansOf([{ lane: "a", name: "b", start: 1, mood: "bad" } as never])[0]).toMatchObject({ end: null, mood: "bad" }));
});

describe("actions", () => {
  it("are shown as they are typed", () => expect(commandLine(["shoal", "set", "a b", "it's"])).toBe("shoal set 'a b' 'it'\\''s'"));
  it("go to the server's own API only", () => {
    expect(isOwn({ path: "/v1/gc?dry_run=true" })).toBe(true);
    for (const path of ["//evil.example/v1/", "https://evil.example/", "/v1/../etc", "javascript:alert(1)", "/ui/"]) expect(isOwn({ path })).toBe(false);
  });
});

describe("tenants and services", () => {
  it("are due a share by weight if they want one", () => {
    const shares = sharesOf([
      { name: "a", weight: 2, used: { accelerators: { x: 3 } } }, { name: "b", weight: 1, jobs: { QUEUED: 1 } }, { name: "c", weight: 9 },
    ]);
    expect(shares.map((one) => [one.due, one.got])).toEqual([[2 / 3, 1], [1 / 3, 0], [0, 0]]);
  });
  it("keep their objective or not", () => {
    const traffic = { p99_s: 0.08 } as never;
    expect(objectiveOf({ slo_p99_s: 0.05, traffic })).toEqual({ text: "P99 ≤ 50 ms", mood: "bad" });
    expect(objectiveOf({ slo_p99_s: 0.1, traffic })?.mood).toBe("good");
    expect(objectiveOf({ slo_p99_s: null, traffic })).toBeNull();
  });
  it("say why they refused, the most frequent cause first", () => {
    expect(causesOf({ late: 1, "rate-limit": 20, new: 2 })).toBe("20 above the rate limit, 2 new, 1 waited too long");
    expect(causesOf({})).toBe("");
    expect(causesOf(undefined)).toBe("");
  });
  it("split their traffic", () => {
    expect(splitsOf({ routes: { text: { shares: { 1: 9, 2: 1 } } } })).toEqual([{ model: "text", parts: [{ version: "1", share: 0.9 }, { version: "2", share: 0.1 }] }]);
    expect(splitsOf({ routes: { text: null, other: { shares: "x" } } })).toEqual([]);
  });
  it("show what ranks used", () =>
    expect(rankUses({ placement: [{ rank: 0, node: "n", devices: ["g0"] }], ranks: [{ rank: 0, memory_bytes: 5, exit_code: 1 }] } as never)).toEqual([
      { rank: 0, node: "n", devices: ["g0"], peakBytes: 5, exit: "exit code 1" },
    ]));
});

describe("events", () => {
  it("concern parts of the page", () => {
    expect([...topicsOf(["job.state"])].sort()).toEqual(["events", "jobs", "nodes", "status", "tenants"]);
    expect([...topicsOf(["something.else"])].sort()).toEqual(["events", "status"]);
    expect(topicsOf([]).size).toBe(0);
  });
});
