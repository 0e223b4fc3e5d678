/** Finds a text in lines and marks it in their spans. */
import { textOf, type Line, type Span } from "./ansi";

export interface Hit {
  readonly line: number;
  readonly from: number;
  readonly to: number;
}

/** The places of a text, letters of either size, in order. Stops at `most`. */
export function findHits(lines: readonly Line[], typed: string, most = 10_000): Hit[] {
  const wanted = typed.toLowerCase();
  if (!wanted) return [];
  const hits: Hit[] = [];
  for (let line = 0; line < lines.length; line++) {
    const text = textOf(lines[line] ?? []).toLowerCase();
    for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
      hits.push({ line, from: at, to: at + wanted.length });
      if (hits.length >= most) return hits;
    }
  }
  return hits;
}

export interface Marked extends Span {
  readonly mark: "" | "hit" | "at";
}

/** The spans of a line cut where hits begin and end; `at` is the hit that the reader stands on. */
export function mark(line: Line, hits: readonly Hit[], at: Hit | null): Marked[] {
  const out: Marked[] = [];
  let start = 0;
  for (const span of line) {
    let from = 0;
    const end = start + span.text.length;
    for (const hit of hits) {
      if (hit.to <= start || hit.from >= end) continue;
      const left = Math.max(0, hit.from - start);
      const right = Math.min(span.text.length, hit.to - start);
      if (left > from) out.push({ ...span, text: span.text.slice(from, left), mark: "" });
      out.push({ ...span, text: span.text.slice(left, right), mark: hit === at ? "at" : "hit" });
      from = right;
    }
    if (from < span.text.length) out.push({ ...span, text: span.text.slice(from), mark: "" });
    start = end;
  }
  return out;
}
