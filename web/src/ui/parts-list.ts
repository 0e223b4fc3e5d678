/** The components' pages that have no page by hand, by title. */
import type { Page } from "../api/types";

const BY_HAND = new Set(["serve", "tenancy"]);

export function shown(pages: Record<string, Page> | undefined): [string, Page][] {
  return Object.entries(pages ?? {})
    .filter(([name]) => !BY_HAND.has(name))
    .sort(([, a], [, b]) => a.title.localeCompare(b.title));
}
