import { describe, expect, it } from "vitest";
import { accelerators, bytes, codeParts, dollars, duration, number, plural, relative, resources, share, words } from "../src/lib/format";
import { contrast, inkOn, legible, parseHex } from "../src/lib/contrast";

describe("numbers", () => {
  it.each([[0, "0"], [12, "12"], [1234567, "1,234,567"], [0.12345, "0.123"], [12.345, "12.3"], [123.45, "123.5"], [0.00001, "1.0e-5"], [Number.NaN, "–"]])(
    "%f is %s", (value, text) => expect(number(value)).toBe(text));
  it("have their plurals", () => {
    expect(plural(1, "job")).toBe("1 job");
    expect(plural(0, "job")).toBe("0 jobs");
    expect(plural(2, "body", "bodies")).toBe("2 bodies");
  });
  it("are shares and dollars", () => {
    expect(share(0.5)).toBe("50 %");
    expect(share(0.0123)).toBe("1.2 %");
    expect(dollars(1234.5)).toBe("$1,234.50");
  });
});

describe("sizes", () => {
  it.each([[0, "0 B"], [1023, "1023 B"], [1536, "1.5 KiB"], [64 * 2 ** 20, "64 MiB"], [150.4 * 2 ** 30, "150 GiB"]])(
    "%d is %s", (value, text) => expect(bytes(value)).toBe(text));
});

describe("durations", () => {
  it.each([[0, "0 s"], [0.00004, "40 µs"], [0.125, "125 ms"], [9.96, "10 s"], [59.7, "1 min"], [61, "1 min 1 s"], [7500, "2 h 5 min"], [86_400 * 3 + 60, "3 d"], [-30, "−30 s"]])(
    "%d is %s", (value, text) => expect(duration(value)).toBe(text));
  it("are told from now", () => {
    expect(relative(100, 102)).toBe("now");
    expect(relative(100, 400)).toBe("5 min ago");
    expect(relative(10_000, 100)).toBe("in 2 h");
  });
});

describe("resources", () => {
  it("are told in a line", () => {
    expect(resources({ accelerators: { a100: 2 }, cpu_milli: 8000, memory_bytes: 2 ** 36 }, 4)).toBe("4 ranks of 2 × a100, 8 cores, 64 GiB");
    expect(resources({ accelerators: { any: 1 } })).toBe("1 accelerator");
    expect(resources({})).toBe("nothing");
    expect(accelerators({ accelerators: { a100: 2, h100: 0 } }, 3)).toBe("6 × a100");
  });
});

describe("texts", () => {
  it("become words", () => expect(words("last_decision")).toBe("Last decision"));
  it("show what is typed as such", () => {
    expect(codeParts("run `shoal up` now")).toEqual(["run ", "shoal up", " now"]);
    expect(codeParts("a lonely ` sign")).toEqual(["a lonely ` sign"]);
  });
});

describe("a job's colours", () => {
  it("can be read on light and dark", () => {
    for (let index = 0; index < 64; index++) {
      const colour = `#${[index & 3, (index >> 2) & 3, (index >> 4) & 3].map((one) => (one * 85).toString(16).padStart(2, "0")).join("")}`;
      expect(contrast(parseHex(legible(colour, false)), [255, 255, 255])).toBeGreaterThanOrEqual(4.5);
      expect(contrast(parseHex(legible(colour, true)), [16, 22, 27])).toBeGreaterThanOrEqual(4.5);
      expect(contrast(parseHex(inkOn(colour)), parseHex(colour))).toBeGreaterThanOrEqual(4.5);
    }
  });
});
