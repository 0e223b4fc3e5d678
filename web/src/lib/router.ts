/** The page's address: the path below /ui/ and its query. */
import { signal } from "@preact/signals";

export const BASE = "/ui/";

export interface Place {
  readonly path: readonly string[];
  readonly query: URLSearchParams;
}

function read(): Place {
  const { pathname, search } = window.location;
  const below = pathname.startsWith(BASE) ? pathname.slice(BASE.length) : "";
  const path = below.split("/").filter(Boolean).map(decode);
  return { path, query: new URLSearchParams(search) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const place = signal<Place>(read());

/** The address of a place in the page, from its parts. */
export function href(...parts: readonly string[]): string {
  return BASE + parts.map(encodeURIComponent).join("/");
}

export function go(address: string, replace = false): void {
  if (address === window.location.pathname + window.location.search) return;
  window.history[replace ? "replaceState" : "pushState"](null, "", address);
  place.value = read();
}

/** Sets the query of the present place, without an entry in the history. */
export function setQuery(query: string): void {
  go(window.location.pathname + (query ? `?${query}` : ""), true);
}

export function listen(): void {
  window.addEventListener("popstate", () => {
    place.value = read();
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
      return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!link || link.target || link.hasAttribute("download") || link.origin !== window.location.origin) return;
    if (!link.pathname.startsWith(BASE)) return;
    event.preventDefault();
    go(link.pathname + link.search);
    document.getElementById("main")?.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  });
}
