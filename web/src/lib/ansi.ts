/** Output of a terminal as lines of styled spans: colours, carriage returns and moves as a terminal shows them.
 *
 * What a job prints is hostile input. Nothing here makes markup or runs anything: a span is a text with a style, unknown
 * sequences are dropped, and numbers, line lengths and unfinished sequences are bounded. */

export interface Style {
  /** A colour 0 to 15 of the theme, or "#rrggbb". */
  readonly fg?: number | string;
  readonly bg?: number | string;
  readonly bold?: boolean;
  readonly dim?: boolean;
  readonly italic?: boolean;
  readonly underline?: boolean;
  readonly strike?: boolean;
  readonly inverse?: boolean;
}

export interface Span {
  readonly text: string;
  readonly style: Style;
}

export type Line = readonly Span[];

export const PLAIN: Style = {};
export const MAX_COLUMNS = 20_000;
const MAX_SEQUENCE = 4096;
const MAX_BACK = 200;

interface Cell {
  char: string;
  style: Style;
}

/** Characters that would reorder or hide other text, and control characters: shown as one visible sign. */
const UNSAFE = /[\u0000-\u0008\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export function visible(text: string): string {
  return text.replace(UNSAFE, "\ufffd");
}

export class Screen {
  /** Lines above the one with the cursor, and that one once it is flushed. */
  readonly lines: Line[] = [];
  /** Lines that were dropped at the top because of `keep`. */
  dropped = 0;
  private row = 0;
  private column = 0;
  private cells: Cell[] | null = null;
  private style: Style = PLAIN;
  private rest = "";
  /** Characters beyond MAX_COLUMNS of the present line, which are not kept. */
  private overflow = 0;

  constructor(private readonly keep = 100_000) {}

  /** Takes the next piece of output. Afterwards `lines` holds all of it. */
  feed(piece: string): void {
    const text = this.rest + piece;
    this.rest = "";
    let at = 0;
    while (at < text.length) {
      const end = nextControl(text, at);
      if (end > at) this.write(text.slice(at, end));
      if (end >= text.length) break;
      const used = this.control(text, end);
      if (used === 0) {
        const left = text.slice(end);
        this.rest = left.length > MAX_SEQUENCE ? "" : left;
        break;
      }
      at = end + used;
    }
    this.flush();
    this.trim();
  }

  private trim(): void {
    const over = this.lines.length - this.keep;
    if (over < this.keep / 10) return;
    this.lines.splice(0, over);
    this.dropped += over;
    this.row = Math.max(0, this.row - over);
  }

  private write(text: string): void {
    const clean = visible(text);
    if (this.cells === null && this.column === 0 && (this.lines[this.row]?.length ?? 0) === 0) {
      // Most lines are written once, from the left: no cell of theirs is ever needed.
      const kept = clean.slice(0, MAX_COLUMNS);
      this.lines[this.row] = [{ text: kept, style: this.style }];
      this.overflow = clean.length - kept.length;
      this.column = kept.length;
      return;
    }
    const cells = this.load();
    for (const char of clean) {
      if (this.column >= MAX_COLUMNS) {
        this.overflow += 1;
        continue;
      }
      while (cells.length < this.column) cells.push({ char: " ", style: PLAIN });
      cells[this.column] = { char, style: this.style };
      this.column += 1;
    }
  }

  private load(): Cell[] {
    if (this.cells === null) {
      this.cells = [];
      for (const span of this.lines[this.row] ?? []) {
        for (const char of span.text) this.cells.push({ char, style: span.style });
      }
    }
    return this.cells;
  }

  private flush(): void {
    if (this.cells !== null) this.lines[this.row] = spansOf(this.cells);
    this.cells = null;
    while (this.lines.length <= this.row) this.lines.push([]);
  }

  private goTo(row: number): void {
    this.flush();
    if (this.overflow > 0) {
      const more = `… ${this.overflow} more characters`;
      this.lines[this.row] = [...(this.lines[this.row] ?? []), { text: more, style: { dim: true } }];
      this.overflow = 0;
    }
    this.row = row;
    while (this.lines.length <= row) this.lines.push([]);
  }

  /** Handles the control character at `at`; returns the number of characters used, 0 if more are needed. */
  private control(text: string, at: number): number {
    switch (text[at]) {
      case "\n":
        this.goTo(this.row + 1);
        this.column = 0;
        return 1;
      case "\r":
        this.column = 0;
        if (this.lines[this.row]?.length) this.load();
        return 1;
      case "\b":
        this.column = Math.max(0, this.column - 1);
        this.load();
        return 1;
      case "\t": {
        const width = 8 - (this.column % 8);
        this.write(" ".repeat(width));
        return 1;
      }
      default:
        return this.escape(text, at);
    }
  }

  private escape(text: string, at: number): number {
    const next = text[at + 1];
    if (next === undefined) return 0;
    if (next === "[") {
      CSI.lastIndex = at + 2;
      const found = CSI.exec(text);
      if (found === null) return text.length - at > MAX_SEQUENCE || BROKEN.test(text.slice(at + 2, at + 66)) ? 2 : 0;
      this.sequence(found[1] ?? "", found[2] ?? "");
      return 2 + found[0].length;
    }
    if (next === "]" || next === "P" || next === "^" || next === "_" || next === "X") {
      // A string for the terminal (title, link, device control): never shown.
      STRING_END.lastIndex = at + 2;
      const found = STRING_END.exec(text);
      if (found === null) return text.length - at > MAX_SEQUENCE ? 2 : 0;
      return found.index + found[0].length - at;
    }
    if (next === "(" || next === ")") return text[at + 2] === undefined ? 0 : 3;
    return 2;
  }

  private sequence(parameters: string, final: string): void {
    const numbers = parameters.split(/[;:]/).slice(0, 32).map((one) => Math.min(Number.parseInt(one, 10) || 0, 65_535));
    const first = numbers[0] ?? 0;
    const count = Math.max(1, first);
    switch (final) {
      case "m":
        if (/^[\d;:]*$/.test(parameters)) this.style = restyle(this.style, numbers);
        break;
      case "K":
        this.erase(first);
        break;
      case "G":
        this.moveTo(count - 1);
        break;
      case "C":
        this.moveTo(this.column + count);
        break;
      case "D":
        this.moveTo(this.column - count);
        break;
      case "A":
      case "F":
        this.goTo(Math.max(0, this.row - Math.min(count, MAX_BACK)));
        if (final === "F") this.column = 0;
        this.load();
        break;
      case "B":
      case "E":
        this.goTo(Math.min(this.lines.length - 1, this.row + Math.min(count, MAX_BACK)));
        if (final === "E") this.column = 0;
        this.load();
        break;
    }
  }

  private moveTo(column: number): void {
    this.column = Math.max(0, Math.min(column, MAX_COLUMNS));
    this.load();
  }

  private erase(which: number): void {
    const cells = this.load();
    if (which === 2) cells.length = 0;
    else if (which === 1) for (let i = 0; i <= this.column && i < cells.length; i++) cells[i] = { char: " ", style: PLAIN };
    else cells.length = Math.min(cells.length, this.column);
  }
}

const CSI = /([0-?]*)[ -/]*([@-~])/y;
const BROKEN = /^[0-?]*[ -/]*[^0-?@-~ -/]/;
const STRING_END = /\u0007|\u001b\\/g;

function nextControl(text: string, from: number): number {
  for (let at = from; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === 27 || code === 10 || code === 13 || code === 8 || code === 9) return at;
  }
  return text.length;
}

function spansOf(cells: readonly Cell[]): Span[] {
  const spans: Span[] = [];
  let text = "";
  let style: Style | null = null;
  for (const cell of cells) {
    if (style !== null && cell.style !== style) {
      spans.push({ text, style });
      text = "";
    }
    style = cell.style;
    text += cell.char;
  }
  if (style !== null) spans.push({ text, style });
  return spans;
}

/** The style after a sequence "select graphic rendition". */
export function restyle(before: Style, codes: readonly number[]): Style {
  let style: Style = before;
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i] ?? 0;
    if (code === 38 || code === 48) {
      const [colour, used] = longColour(codes, i + 1);
      i += used;
      if (colour !== null) style = code === 38 ? { ...style, fg: colour } : { ...style, bg: colour };
    } else style = shortCode(style, code);
  }
  return style;
}

function shortCode(style: Style, code: number): Style {
  if (code === 0) return PLAIN;
  if (code === 1) return { ...style, bold: true };
  if (code === 2) return { ...style, dim: true };
  if (code === 3) return { ...style, italic: true };
  if (code === 4) return { ...style, underline: true };
  if (code === 7) return { ...style, inverse: true };
  if (code === 9) return { ...style, strike: true };
  if (code === 22) return { ...style, bold: false, dim: false };
  if (code === 23) return { ...style, italic: false };
  if (code === 24) return { ...style, underline: false };
  if (code === 27) return { ...style, inverse: false };
  if (code === 29) return { ...style, strike: false };
  if (code >= 30 && code <= 37) return { ...style, fg: code - 30 };
  if (code === 39) return { ...style, fg: undefined };
  if (code >= 40 && code <= 47) return { ...style, bg: code - 40 };
  if (code === 49) return { ...style, bg: undefined };
  if (code >= 90 && code <= 97) return { ...style, fg: code - 82 };
  if (code >= 100 && code <= 107) return { ...style, bg: code - 92 };
  return style;
}

/** A colour of 256 or of 16 million, and how many numbers it took. */
function longColour(codes: readonly number[], at: number): [number | string | null, number] {
  if (codes[at] === 5) {
    const index = codes[at + 1];
    return [index === undefined || index > 255 ? null : paletteColour(index), 2];
  }
  if (codes[at] === 2) return [hex(codes[at + 1] ?? 0, codes[at + 2] ?? 0, codes[at + 3] ?? 0), 4];
  return [null, codes.length];
}

function paletteColour(index: number): number | string {
  if (index < 16) return index;
  if (index >= 232) {
    const grey = 8 + (index - 232) * 10;
    return hex(grey, grey, grey);
  }
  const part = (value: number): number => (value === 0 ? 0 : 55 + value * 40);
  const cube = index - 16;
  return hex(part(Math.floor(cube / 36)), part(Math.floor(cube / 6) % 6), part(cube % 6));
}

function hex(...parts: number[]): string {
  return `#${parts.map((one) => Math.min(255, one).toString(16).padStart(2, "0")).join("")}`;
}

/** The text of a line, without its styles. */
export function textOf(line: Line): string {
  return line.length === 1 ? (line[0]?.text ?? "") : line.map((span) => span.text).join("");
}
