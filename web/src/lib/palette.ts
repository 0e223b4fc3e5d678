/** What a typed word finds in the palette. */

export interface Item {
  readonly label: string;
  readonly kind: string;
  readonly words?: string;
}

/** How well the text fits: lower is better; null: not at all. Every typed word must be found. */
export function score(item: Item, typed: string): number | null {
  const label = item.label.toLowerCase();
  const all = `${label} ${item.kind.toLowerCase()} ${item.words?.toLowerCase() ?? ""}`;
  let sum = 0;
  for (const word of typed.toLowerCase().split(/\s+/).filter(Boolean)) {
    if (label.startsWith(word)) sum += 0;
    else if (label.includes(` ${word}`) || label.includes(`-${word}`)) sum += 1;
    else if (label.includes(word)) sum += 2;
    else if (all.includes(word)) sum += 3;
    else return null;
  }
  return sum;
}

export function find<T extends Item>(items: readonly T[], typed: string, limit: number): T[] {
  return items
    .map((item, place) => ({ item, place, score: score(item, typed) }))
    .filter((one): one is { item: T; place: number; score: number } => one.score !== null)
    .sort((a, b) => a.score - b.score || a.place - b.place)
    .slice(0, limit)
    .map((one) => one.item);
}
