/** The frame: navigation, the line about a cut connection, and keys that work everywhere. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { api, ask } from "../api/client";
import { href, place } from "../lib/router";
import { isAdmin, mayChange, session, signOut } from "../lib/session";
import { setTheme, theme, type Theme } from "../lib/theme";
import { countGroups } from "../lib/states";
import { moment } from "../lib/format";
import { useLoad } from "../live/load";
import { now, staleSince } from "../live/news";
import { Icon, type IconName } from "./icons";
import { Palette } from "./palette";
import { shown } from "./parts-list";

export interface Goal {
  readonly name: string;
  readonly label: string;
  readonly icon: IconName;
}

const GOALS: readonly Goal[] = [
  { name: "jobs", label: "Jobs", icon: "jobs" },
  { name: "services", label: "Services", icon: "services" },
  { name: "nodes", label: "Nodes", icon: "nodes" },
  { name: "tenants", label: "Tenants", icon: "tenants" },
  { name: "events", label: "Events", icon: "events" },
  { name: "planes", label: "Planes", icon: "planes" },
  { name: "server", label: "Server", icon: "server" },
];

/** Places that this reader may see. */
export const goals = (): readonly Goal[] => GOALS.filter((one) => one.name !== "planes" || isAdmin());

export function Shell({ children }: { children: ComponentChildren }) {
  const [open, setOpen] = useState(false);
  const [palette, setPalette] = useState(false);
  useEffect(() => setOpen(false), [place.value]);
  useEffect(() => {
    const press = (event: KeyboardEvent): void => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setPalette(true);
      } else if (event.key === "/" && !isTyping(event.target)) {
        const field = document.querySelector<HTMLInputElement>("#main input[type=search]");
        event.preventDefault();
        if (field) field.select();
        else setPalette(true);
      }
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
  return (
    <div class="shell">
      <a class="skip button" href="#main">
        Skip to the content
      </a>
      <header class="topbar">
        <Brand />
        <button type="button" class="icon-button" aria-label="Search and commands" onClick={() => setPalette(true)}>
          <Icon name="search" />
        </button>
        <button type="button" class="icon-button" aria-label="Navigation" aria-expanded={open} onClick={() => setOpen(!open)}>
          <Icon name={open ? "close" : "menu"} />
        </button>
      </header>
      <Navigation open={open} seek={() => setPalette(true)} />
      <main class="main" id="main" tabIndex={-1}>
        <Stale />
        {children}
      </main>
      {palette && <Palette close={() => setPalette(false)} />}
    </div>
  );
}

export function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

function Brand() {
  return (
    <a class="brand" href="/ui/jobs">
      <Fish />
      Shoal
    </a>
  );
}

export function Fish() {
  return (
    <svg viewBox="0 0 24 24" width="24" height="24" aria-hidden="true">
      <path fill="var(--accent)" d="M2 12c4-6 11-7 15-2l4-4v12l-4-4c-4 5-11 4-15-2z" />
      <circle cx="8" cy="11" r="1.3" fill="var(--surface)" />
    </svg>
  );
}

function Navigation({ open, seek }: { open: boolean; seek: () => void }) {
  const here = place.value.path[0] ?? "jobs";
  const status = useLoad("status", () => ask(api.GET("/v1/status")), ["status"]);
  const parts = useLoad("parts", () => ask(api.GET("/v1/pages")), []);
  const counts = status.data ? countGroups(status.data.jobs ?? {}) : null;
  return (
    <nav class={`nav ${open ? "open" : ""}`} aria-label="Main">
      <Brand />
      <button type="button" class="seek" onClick={seek}>
        <Icon name="search" /> Search <kbd>Ctrl K</kbd>
      </button>
      {mayChange() && (
        <a class="button primary" href={href("submit")}>
          <Icon name="plus" /> New job
        </a>
      )}
      {goals().map((goal) => (
        <a class="nav-link" href={href(goal.name)} aria-current={here === goal.name ? "page" : undefined}>
          <Icon name={goal.icon} /> {goal.label}
          {goal.name === "jobs" && counts !== null && counts.running > 0 && (
            <span class="nav-count">{counts.running} running</span>
          )}
        </a>
      ))}
      {parts.data && shown(parts.data.pages).length > 0 && <div class="nav-title">Components</div>}
      {shown(parts.data?.pages).map(([name, page]) => (
        <a class="nav-link" href={href("parts", name)} aria-current={here === "parts" && place.value.path[1] === name ? "page" : undefined}>
          <Icon name="part" /> {page.title}
        </a>
      ))}
      <div class="nav-foot">
        <Who />
      </div>
    </nav>
  );
}

const THEMES: readonly { readonly name: Theme; readonly icon: IconName; readonly label: string }[] = [
  { name: "system", icon: "auto", label: "Colours as the system has them" },
  { name: "light", icon: "sun", label: "Light colours" },
  { name: "dark", icon: "moon", label: "Dark colours" },
];

function Who() {
  const at = THEMES.findIndex((one) => one.name === theme.value);
  const next = THEMES[(at + 1) % THEMES.length];
  const present = THEMES[at];
  const who = session.value;
  return (
    <div class="who">
      <span class="who-name" title={who?.name ?? ""}>
        <span>{who?.tenant ? `${who.role ?? "member"} of ${who.tenant}` : (who?.role ?? "admin")}</span>
        <small>{who?.name}</small>
      </span>
      {present && next && (
        <button type="button" class="icon-button" aria-label={`${present.label}; change`} title={present.label} onClick={() => setTheme(next.name)}>
          <Icon name={present.icon} />
        </button>
      )}
      <button type="button" class="icon-button" aria-label="Sign out" title="Sign out" onClick={() => void signOut()}>
        <Icon name="out" />
      </button>
    </div>
  );
}

function Stale() {
  const since = staleSince.value;
  if (since === null) return null;
  return (
    <div class="stale" role="status">
      <span class="spinner" aria-hidden="true" />
      Not up to date since {moment(since, now.value, true)}: the server does not answer. The page goes on by itself.
    </div>
  );
}
