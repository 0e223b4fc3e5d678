/** Ctrl-K: go anywhere and do anything by typing a part of its name. */
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { api, ask } from "../api/client";
import { looksLikeId, pattern } from "../lib/filters";
import { find, type Item } from "../lib/palette";
import { go, href } from "../lib/router";
import { mayChange, signOut } from "../lib/session";
import { setTheme } from "../lib/theme";
import { useLoad } from "../live/load";
import { Icon, type IconName } from "./icons";
import { shown } from "./parts-list";
import { goals } from "./shell";

interface Entry extends Item {
  readonly icon: IconName;
  readonly run: () => void;
}

export function Palette({ close }: { close: () => void }) {
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const [jobs, setJobs] = useState<Entry[]>([]);
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  const parts = useLoad("palette", () => ask(api.GET("/v1/pages")), []);
  const services = useLoad("palette-services", () => ask(api.GET("/v1/services", { params: { query: { limit: 200 } } })), []);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  useEffect(() => {
    const text = typed.trim();
    setAt(0);
    if (text.length < 2) return setJobs([]);
    const abort = new AbortController();
    const timer = setTimeout(() => {
      findJobs(text, abort.signal).then(setJobs, () => setJobs([]));
    }, 120);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [typed]);

  const fixed: Entry[] = [
    ...(mayChange() ? [entry("New job", "do", "plus", "submit")] : []),
    ...goals().map((goal) => entry(goal.label, "page", goal.icon, goal.name)),
    ...shown(parts.data?.pages).map(([name, page]) => entry(page.title, "component", "part", "parts", name)),
    entry("Settings and doctor", "page", "server", "server"),
    ...(services.data?.services ?? []).map((one) => entry(one.name, "service", "services", "services", one.id)),
    ...(["waiting", "running", "failed"] as const).map((state) => ({
      label: `Jobs that are ${state}`, kind: "filter", icon: "jobs" as const, run: () => go(`${href("jobs")}?state=${state}`),
    })),
    { label: "Dark colours", kind: "do", icon: "moon", run: () => setTheme("dark") },
    { label: "Light colours", kind: "do", icon: "sun", run: () => setTheme("light") },
    { label: "Colours of the system", kind: "do", icon: "auto", run: () => setTheme("system") },
    { label: "Sign out", kind: "do", icon: "out", run: () => void signOut() },
  ];
  const found = [...find(fixed, typed, 12), ...jobs].slice(0, 20);
  const chosen = Math.min(at, found.length - 1);
  const run = (one: Entry | undefined): void => {
    if (!one) return;
    close();
    one.run();
  };
  const press = (event: KeyboardEvent): void => {
    if (event.key === "ArrowDown") setAt(Math.min(chosen + 1, found.length - 1));
    else if (event.key === "ArrowUp") setAt(Math.max(chosen - 1, 0));
    else if (event.key === "Enter") run(found[chosen]);
    else return;
    event.preventDefault();
    document.getElementById(`${id}-${event.key === "ArrowUp" ? chosen - 1 : chosen + 1}`)?.scrollIntoView({ block: "nearest" });
  };
  return (
    <dialog ref={dialog} class="dialog palette" aria-labelledby={`${id}-title`} onClose={close} onClick={(event) => event.target === dialog.current && close()}>
      <div class="dialog-body">
        <h2 id={`${id}-title`}>Search and commands</h2>
        <input
          type="text" role="combobox" aria-expanded="true" aria-controls={`${id}-list`} aria-label="Search jobs, services, pages and commands"
          aria-activedescendant={found.length ? `${id}-${chosen}` : undefined} autocomplete="off" spellcheck={false}
          placeholder="A job's name or id, a service, a page …" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} onKeyDown={press}
        />
        <div class="palette-list" role="listbox" id={`${id}-list`} aria-label="Found">
          {found.map((one, index) => (
            <div key={`${one.kind}${one.label}${index}`} id={`${id}-${index}`} class="palette-item" role="option" aria-selected={index === chosen} onClick={() => run(one)} onMouseMove={() => setAt(index)}>
              <Icon name={one.icon} /> <bdi>{one.label}</bdi> <span class="muted">{one.kind}</span>
            </div>
          ))}
        </div>
        {found.length === 0 && <p class="palette-none">Nothing is called that.</p>}
      </div>
    </dialog>
  );
}

function entry(label: string, kind: string, icon: IconName, ...to: string[]): Entry {
  return { label, kind, icon, run: () => go(href(...to)) };
}

async function findJobs(text: string, signal: AbortSignal): Promise<Entry[]> {
  if (looksLikeId(text)) {
    const job = await ask(api.GET("/v1/jobs/{ref}", { params: { path: { ref: text } }, signal }));
    return [{ ...entry(job.name, `job, ${job.state.toLowerCase()}`, "jobs", "jobs", job.id) }];
  }
  const answer = await ask(api.GET("/v1/jobs", { params: { query: { name: pattern(text.slice(0, 61)), limit: 8 } }, signal }));
  return answer.jobs.map((job) => entry(job.name, `job, ${job.state.toLowerCase()}`, "jobs", "jobs", job.id));
}
