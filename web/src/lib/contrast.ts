/** Colours that a job chose, moved until they can be read on the page's background. */

type Rgb = readonly [number, number, number];

const READABLE = 4.5;
const BACKGROUNDS: Record<"light" | "dark", Rgb> = { light: [238, 243, 245], dark: [28, 38, 46] };

export function parseHex(colour: string): Rgb {
  const value = Number.parseInt(colour.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

export function luminance(rgb: Rgb): number {
  const [r, g, b] = rgb.map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * (r ?? 0) + 0.7152 * (g ?? 0) + 0.0722 * (b ?? 0);
}

/** The ratio of WCAG, from 1 to 21. */
export function contrast(one: Rgb, other: Rgb): number {
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return ((high ?? 0) + 0.05) / ((low ?? 0) + 0.05);
}

const known = new Map<string, string>();

/** The same hue, darker on a light page and lighter on a dark one, as far as is needed. */
export function legible(colour: string, dark: boolean): string {
  const key = `${colour}${dark}`;
  const found = known.get(key) ?? mend(parseHex(colour), dark);
  if (known.size < 4096) known.set(key, found);
  return found;
}

function mend(rgb: Rgb, dark: boolean): string {
  const background = BACKGROUNDS[dark ? "dark" : "light"];
  const goal = dark ? 255 : 0;
  let present = rgb;
  for (let step = 0; step <= 20 && contrast(present, background) < READABLE; step++) {
    const part = step / 20;
    present = [mix(rgb[0], goal, part), mix(rgb[1], goal, part), mix(rgb[2], goal, part)];
  }
  return hex(present);
}

/** Black or white, whichever can be read on a colour. */
export function inkOn(colour: string): string {
  return luminance(parseHex(colour)) > 0.179 ? "#000000" : "#ffffff";
}

const mix = (from: number, to: number, part: number): number => Math.round(from + (to - from) * part);
const hex = (rgb: Rgb): string => `#${rgb.map((one) => one.toString(16).padStart(2, "0")).join("")}`;
