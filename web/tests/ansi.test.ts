import { describe, expect, it } from "vitest";
import { MAX_COLUMNS, Screen, textOf, type Line } from "../src/lib/ansi";

function shown(...pieces: string[]): string[] {
  const screen = new Screen();
  for (const piece of pieces) screen.feed(piece);
  return screen.lines.map(textOf);
}

function spans(text: string): Line {
  const screen = new Screen();
  screen.feed(text);
  return screen.lines[0] ?? [];
}

describe("text", () => {
  it("is cut into lines", () => expect(shown("one\ntwo\n")).toEqual(["one", "two", ""]));
  it("is the same in pieces of any size", () => {
    const whole = "a\x1b[31mred\x1b[0m\r\nb\tc\x1b]0;title\x07d\x1b[2Kx\rprogress 10%\rprogress 20%\n\x1b[38;2;1;2;3mrgb\x1b[m end";
    const screen = new Screen();
    for (const char of whole) screen.feed(char);
    const once = new Screen();
    once.feed(whole);
    expect(screen.lines.map(textOf)).toEqual(once.lines.map(textOf));
    expect(textOf(once.lines[1] ?? [])).toBe("progress 20%");
  });
  it("keeps a carriage return before a line's end", () => expect(shown("one\r\ntwo")).toEqual(["one", "two"]));
  it("sets tabs", () => expect(shown("a\tb")).toEqual(["a       b"]));
});

describe("progress bars", () => {
  it("overwrite their line", () => expect(shown("  0%\r 50%", "\r100%\ndone")).toEqual(["100%", "done"]));
  it("leave what a shorter text does not cover", () => expect(shown("abcdef\rxy")).toEqual(["xycdef"]));
  it("erase to the end of the line", () => expect(shown("abcdef\rxy\x1b[K")).toEqual(["xy"]));
  it("erase the whole line", () => expect(shown("abcdef\x1b[2K\rxy")).toEqual(["xy"]));
  it("go up to bars above", () => expect(shown("bar 1\nbar 2\n\x1b[2Abar A\n\x1b[1Bend")).toEqual(["bar A", "bar 2", "end"]));
  it("go back by one", () => expect(shown("ab\b\bcd")).toEqual(["cd"]));
  it("move to a column", () => expect(shown("abc\x1b[1Gx\x1b[5Gy")).toEqual(["xbc y"]));
});

describe("colours", () => {
  it("begin and end", () =>
    expect(spans("a\x1b[31mb\x1b[0mc\r")).toEqual([
      { text: "a", style: {} },
      { text: "b", style: { fg: 1 } },
      { text: "c", style: {} },
    ]));
  it("come in 16, 256 and millions", () => {
    expect(spans("\x1b[91mx\r")[0]?.style.fg).toBe(9);
    expect(spans("\x1b[38;5;9mx\r")[0]?.style.fg).toBe(9);
    expect(spans("\x1b[38;5;244mx\r")[0]?.style.fg).toBe("#808080");
    expect(spans("\x1b[38;5;196mx\r")[0]?.style.fg).toBe("#ff0000");
    expect(spans("\x1b[48;2;1;2;300mx\r")[0]?.style.bg).toBe("#0102ff");
    expect(spans("\x1b[1;4;38:5:2mx\r")[0]?.style).toMatchObject({ bold: true, underline: true, fg: 2 });
  });
  it("last across lines", () => {
    const screen = new Screen();
    screen.feed("\x1b[32mgreen\nstill");
    expect(screen.lines[1]?.[0]?.style).toEqual({ fg: 2 });
  });
});

describe("hostile output", () => {
  it("is only text", () => expect(shown("<img src=x onerror=alert(1)>\x1b]8;;javascript:alert(1)\x07link\x1b]8;;\x07")).toEqual(["<img src=x onerror=alert(1)>link"]));
  it("does not clear, set titles or answer", () => expect(shown("a\x1b[2J\x1b[H\x1b[6n\x1bcb\x1bP+q\x1b\\c\x1b_x\x1b\\d")).toEqual(["abcd"]));
  it("shows what would reorder or hide text", () => expect(shown("a\u202eb\u2066c\u0000d\u009be")).toEqual(["a\ufffdb\ufffdc\ufffdd\ufffde"]));
  it("cannot make a line without end", () => {
    const [line] = shown("y".repeat(3_000_000));
    expect(line?.length).toBe(MAX_COLUMNS);
    expect(shown(`${"y".repeat(30_000)}\nz`)[0]).toContain("… 10000 more characters");
  });
  it("cannot move far away", () => {
    expect(shown("a\x1b[999999999Cb")[0]?.length).toBeLessThanOrEqual(MAX_COLUMNS + 1);
    expect(shown("a\x1b[999999999B\x1b[999999999Ab").length).toBeLessThan(10);
  });
  it("cannot keep a sequence open for ever", () => {
    expect(shown(`a\x1b]0;${"t".repeat(10_000)}`, "\nb").join("").length).toBeLessThan(10_010);
    expect(shown(`a\x1b[${"1;".repeat(10_000)}`, "mb\nc").at(-1)).toBe("c");
  });
  it("is forgotten beyond what is kept", () => {
    const screen = new Screen(100);
    for (let line = 0; line < 1000; line++) screen.feed(`line ${line}\n`);
    expect(screen.lines.length).toBeLessThan(120);
    expect(screen.dropped + screen.lines.length).toBe(1001);
    expect(textOf(screen.lines.at(-2) ?? [])).toBe("line 999");
  });
  it("of any bytes never throws, and is never lost for good", () => {
    let seed = 7;
    const next = (): number => (seed = (seed * 1103515245 + 12345) & 0x7fffffff);
    for (let run = 0; run < 300; run++) {
      const screen = new Screen(50);
      for (let piece = 0; piece < 20; piece++) {
        const chars = Array.from({ length: next() % 40 }, () => "\x1b[]PAmKGCDBEF;0129:?\r\n\b\tx<\x07\\\u202e".charAt(next() % 33));
        screen.feed(chars.join(""));
      }
      screen.feed("\x1b\\\n\x1b[0m\nthe end");
      expect(textOf(screen.lines.at(-1) ?? [])).toContain("the end");
    }
  });
});
