/** A line of a terminal: spans of text with classes of the theme's colours. Text only, never markup. */
import type { Line, Style } from "../lib/ansi";
import { inkOn, legible } from "../lib/contrast";
import { isDark } from "../lib/theme";
import type { Marked } from "../lib/marks";

export function AnsiLine({ line }: { line: Line | readonly Marked[] }) {
  if (line.length === 0) return <>{"\u200b"}</>;
  return (
    <>
      {line.map((span) => {
        const found = "mark" in span ? span.mark : "";
        const kind = classOf(span.style, found);
        const style = found ? undefined : coloursOf(span.style, isDark.value);
        if (!kind && !style) return span.text;
        return (
          <span class={kind} style={style}>
            {span.text}
          </span>
        );
      })}
    </>
  );
}

function classOf(style: Style, found: string): string {
  const [fg, bg] = style.inverse ? [style.bg, style.fg] : [style.fg, style.bg];
  const names: string[] = [];
  if (typeof fg === "number") names.push(`fg-${fg}`);
  if (typeof bg === "number") names.push(`bg-${bg}`);
  if (style.inverse) names.push("a-inverse");
  if (style.bold) names.push("a-bold");
  if (style.dim) names.push("a-dim");
  if (style.italic) names.push("a-italic");
  if (style.underline) names.push("a-under");
  if (style.strike) names.push("a-strike");
  if (found) names.push(`mark-${found}`);
  return names.join(" ");
}

function coloursOf(style: Style, dark: boolean): { color?: string; backgroundColor?: string } | undefined {
  const [fg, bg] = style.inverse ? [style.bg, style.fg] : [style.fg, style.bg];
  if (typeof bg === "string") return { color: inkOn(bg), backgroundColor: bg };
  if (typeof fg === "string") return bg === undefined ? { color: legible(fg, dark) } : undefined;
  return undefined;
}
