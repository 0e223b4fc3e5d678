import { describe, expect, it } from "vitest";
import { findHits, mark } from "../src/lib/marks";
import { trimmed } from "../src/lib/manifest";
import { hintsAt, isService, lineOf, pathAt, type Schema } from "../src/lib/schema";
import { documentOf } from "../src/lib/yaml";

describe("YAML", () => {
  it("is written as a person would", () =>
    expect(documentOf({ name: "train", command: ["python", "-c", "print(1)"], env: { LR: "0.1" }, resources: { accelerators: "a100:2", memory: 5 }, list: [{ a: 1, b: [true] }] })).toBe(
      'name: train\ncommand: [python, -c, "print(1)"]\nenv:\n  LR: "0.1"\nresources:\n  accelerators: a100:2\n  memory: 5\nlist:\n  - a: 1\n    b: [true]\n',
    ));
  it("quotes what would be read as anything else", () => {
    for (const text of ["yes", "null", "1", "a: b", "- x", "#c", "", "a #b", "*x", "{a}", "tail ", "\u202e"]) expect(documentOf({ x: text })).toBe(`x: ${JSON.stringify(text)}\n`);
  });
  it("leaves sizes and patterns as they are typed", () =>
    expect(documentOf({ memory: "64MiB", wait: "30s", regex: "it's (\\d+)" })).toBe("memory: 64MiB\nwait: 30s\nregex: 'it''s (\\d+)'\n"));
  it("keeps lines of a script", () => {
    expect(documentOf({ run: ["sh", "a\nb\n"] })).toBe("run:\n  - sh\n  - |\n    a\n    b\n");
    expect(documentOf({ x: "a\n\nb" })).toBe("x: |-\n  a\n\n  b\n");
    expect(documentOf({ x: "\na\n" })).toBe("x: |\n\n  a\n");
    expect(documentOf({ x: " a\nb" })).toBe('x: " a\\nb"\n');
  });
});

describe("a stored manifest", () => {
  it("loses what has its default", () =>
    expect(trimmed({ kind: "job", name: "x", description: "", ranks: 1, network: true, priority: 0, after: [], grace: 10, resources: { accelerators: { type: "any", count: 1, share: "exclusive" }, cpus: 1, memory: 2 ** 30 }, restart: { on: "failure", limits: { user: 0, platform: 3, infrastructure: 5 }, backoff: 1 } })).toEqual({
      name: "x", resources: { accelerators: 1, cpus: 1, memory: "1GiB" },
    }));
  it("keeps the rest as it is", () =>
    expect(trimmed({ name: "x", command: ["sh", "-c", ""], ranks: 4, resources: { accelerators: { type: "a100", count: 2, share: "exclusive" }, memory: 1000 } })).toEqual({
      name: "x", command: ["sh", "-c", ""], ranks: 4, resources: { accelerators: "a100:2", memory: 1000 },
    }));
});

describe("hints", () => {
  const schema: Schema = {
    properties: { name: { description: "its name" }, resources: { $ref: "#/$defs/R", description: "what it holds" }, after: { items: { $ref: "#/$defs/A" } } },
    $defs: { R: { properties: { cpus: { description: "cores" } } }, A: { properties: { when: { enum: ["success", "end"] } } } },
  };
  it("follow the place in the text", () => {
    const lines = ["name: x", "resources:", "  cpus: 1", "", "after:", "  - when: end"];
    expect(pathAt(lines, 0)).toEqual([]);
    expect(pathAt(lines, 2)).toEqual(["resources"]);
    expect(pathAt(lines, 5)).toEqual(["after"]);
    expect(pathAt(["resources:", ""], 1)).toEqual(["resources"]);
    expect(hintsAt(schema, ["resources"]).map((one) => one.name)).toEqual(["cpus"]);
    expect(hintsAt(schema, ["after"])[0]).toMatchObject({ name: "when", values: ["success", "end"] });
    expect(hintsAt(schema, []).find((one) => one.name === "resources")).toMatchObject({ nested: true, about: "what it holds" });
    expect(hintsAt(schema, ["nothing"])).toEqual([]);
  });
  it("do not follow a schema that refers to itself for ever", () => {
    const loop: Schema = { $ref: "#/$defs/L", $defs: { L: { anyOf: [{ $ref: "#/$defs/L" }], properties: { a: {} } } } };
    expect(hintsAt(loop, []).map((one) => one.name)).toEqual(["a"]);
  });
  it("know lines and kinds", () => {
    expect(lineOf("manifest:4: prioritty")).toBe(4);
    expect(lineOf("tenant")).toBeNull();
    expect(isService("name: x\nkind: service\n")).toBe(true);
    expect(isService("# kind: service\n")).toBe(false);
  });
});

describe("search in a log", () => {
  const lines = [[{ text: "an Error ", style: {} }, { text: "here, error", style: { fg: 1 } }], []];
  it("finds all, of either size", () => expect(findHits(lines, "ERROR")).toEqual([{ line: 0, from: 3, to: 8 }, { line: 0, from: 15, to: 20 }]));
  it("marks them across spans, and loses nothing", () => {
    const hits = findHits(lines, "r h");
    const marked = mark(lines[0] ?? [], hits, hits[0] ?? null);
    expect(marked.map((one) => one.text).join("")).toBe("an Error here, error");
    expect(marked.filter((one) => one.mark === "at").map((one) => one.text)).toEqual(["r ", "h"]);
  });
  it("finds nothing for nothing", () => expect(findHits(lines, "")).toEqual([]));
});
