/** Small parts that every page uses. */
import type { ComponentChildren } from "preact";
import type { Refused } from "../api/client";
import { codeParts, duration, fullTime, moment, relative, sentence } from "../lib/format";
import { toneOf } from "../lib/states";
import { now } from "../live/news";
import { Icon } from "./icons";
import { say } from "./toast";

export function State({ state, note }: { state: string; note?: string | undefined }) {
  return (
    <span class={`state tone-${toneOf(state)}`} title={note}>
      <span class="dot" aria-hidden="true" />
      {state.charAt(0) + state.slice(1).toLowerCase()}
    </span>
  );
}

/** A moment as its age; the exact time in the reader's zone on the pointer and for screen readers. */
export function Ago({ at }: { at: number | null | undefined }) {
  if (at == null) return <span class="none">–</span>;
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={fullTime(at)}>
      {relative(at, now.value)}
    </time>
  );
}

export function At({ at, exact }: { at: number | null | undefined; exact?: boolean }) {
  if (at == null) return <span class="none">–</span>;
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={fullTime(at)}>
      {moment(at, now.value, exact)}
    </time>
  );
}

/** A duration that still grows. */
export function Since({ at }: { at: number }) {
  return <>{duration(Math.max(0, Math.floor(now.value - at)))}</>;
}

/** A text of the server, with what is typed in it set as such. */
export function Prose({ text }: { text: string }) {
  return (
    <bdi>
      {codeParts(text).map((part, place) => (place % 2 === 1 ? <code>{part}</code> : part))}
    </bdi>
  );
}

/** A text that others chose: kept apart from its surroundings, whatever its direction. */
export function Name({ children }: { children: string }) {
  return <bdi class="name">{children}</bdi>;
}

export function Loading({ what }: { what: string }) {
  return (
    <div class="quiet" role="status">
      <span class="spinner" aria-hidden="true" /> Loading {what} …
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children && <div class="empty-text">{children}</div>}
    </div>
  );
}

export function Failure({ error, retry }: { error: Refused; retry?: (() => void) | undefined }) {
  return (
    <div class="failure" role="alert">
      <p class="failure-title"><Prose text={sentence(error.what)} /></p>
      {error.problems.length > 1 ? (
        <ul>
          {error.problems.map((one) => (
            <li>
              {one.where && <code>{one.where}</code>} <Prose text={one.what} />
              {one.hint && <span class="muted"> ({one.hint})</span>}
            </li>
          ))}
        </ul>
      ) : (
        (error.where || error.hint) && (
          <p class="muted">
            {error.where && <code>{error.where}</code>} <Prose text={error.hint} />
          </p>
        )
      )}
      {retry && (
        <button type="button" class="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** What a page shows while it has no data: it loads, or why it cannot. */
export function Pending({ error, what, retry }: { error: Refused | null; what: string; retry: () => void }) {
  return error ? <Failure error={error} retry={retry} /> : <Loading what={what} />;
}

export function Header({ title, sub, children }: { title: ComponentChildren; sub?: ComponentChildren; children?: ComponentChildren }) {
  return (
    <header class="page-header">
      <div class="page-title">
        <h1>{title}</h1>
        {sub && <div class="sub">{sub}</div>}
      </div>
      {children && <div class="page-actions">{children}</div>}
    </header>
  );
}

export function Card({ title, side, children, label }: { title?: ComponentChildren; side?: ComponentChildren; children: ComponentChildren; label?: string }) {
  return (
    <section class="card" aria-label={label}>
      {title && (
        <div class="card-head">
          <h2>{title}</h2>
          {side && <div class="card-side">{side}</div>}
        </div>
      )}
      {children}
    </section>
  );
}

/** How much of a whole is used. */
export function Meter({ used, whole, label, tone = "plain" }: { used: number; whole: number; label: string; tone?: string }) {
  const part = whole > 0 ? Math.min(1, used / whole) : 0;
  return (
    <span class={`meter meter-${tone}`} role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={Math.max(whole, used, 1)} aria-valuenow={used}>
      <span class="meter-fill" style={{ width: `${part * 100}%` }} />
    </span>
  );
}

export function Copy({ text, label }: { text: string; label: string }) {
  const copy = (): void => {
    navigator.clipboard?.writeText(text).then(
      () => say("Copied"),
      () => say("The browser does not let the page copy", "bad"),
    );
  };
  return (
    <button type="button" class="icon-button" aria-label={label} title={label} onClick={copy}>
      <Icon name="copy" />
    </button>
  );
}

/** A command line as it is typed in a terminal. */
export function Command({ line }: { line: string }) {
  return (
    <span class="command">
      <code>{line}</code>
      <Copy text={line} label={`Copy the command ${line}`} />
    </span>
  );
}
