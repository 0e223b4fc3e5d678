/** Light, dark, or as the system says. Kept in this browser; it is no secret. */
import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEY = "shoal-theme";

function stored(): Theme {
  try {
    const found = window.localStorage.getItem(KEY);
    return found === "light" || found === "dark" ? found : "system";
  } catch {
    return "system";
  }
}

const dark = window.matchMedia("(prefers-color-scheme: dark)");
export const theme = signal<Theme>(stored());
/** What is shown: plots are drawn with its colours. */
export const isDark = signal(false);

function apply(): void {
  isDark.value = theme.value === "dark" || (theme.value === "system" && dark.matches);
  document.documentElement.dataset["theme"] = isDark.value ? "dark" : "light";
}

export function setTheme(next: Theme): void {
  theme.value = next;
  try {
    if (next === "system") window.localStorage.removeItem(KEY);
    else window.localStorage.setItem(KEY, next);
  } catch {
    // Storage may be closed to the page: then the choice lasts as long as the page.
  }
  apply();
}

apply();
dark.addEventListener("change", apply);
