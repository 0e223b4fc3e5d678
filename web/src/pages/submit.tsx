/** A new job or service: a manifest is written, checked by the server as it is typed, and submitted. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, ask, Refused, send } from "../api/client";
import type { Check } from "../api/types";
import { accelerators, bytes, cores, plural, sentence } from "../lib/format";
import { trimmed } from "../lib/manifest";
import { countDevices } from "../lib/nodes";
import { go, href, place } from "../lib/router";
import { hintsAt, isService, lineOf, pathAt, type Hint, type Schema } from "../lib/schema";
import { isAdmin, mayChange } from "../lib/session";
import { TEMPLATES } from "../lib/templates";
import { documentOf } from "../lib/yaml";
import { asRefused, useLoad } from "../live/load";
import { announce } from "../live/news";
import { Card, Empty, Failure, Header, Prose } from "../ui/parts";
import { say } from "../ui/toast";

const CHECK_AFTER_MS = 500;

export function Submit(_: { path: readonly string[] }) {
  const [text, setText] = useState(TEMPLATES[0]?.text ?? "");
  const [tenant, setTenant] = useState("");
  const [line, setLine] = useState(0);
  const [busy, setBusy] = useState(false);
  const [failed, setFailed] = useState<Refused | null>(null);
  const editor = useRef<HTMLTextAreaElement>(null);
  const service = isService(text);
  const check = useCheck(text, tenant, service);
  const key = useMemo(newKey, [text, tenant]);
  const from = place.value.query.get("from");
  const wanted = place.value.query.get("kind");
  useEffect(() => {
    if (from)
      ask(api.GET("/v1/jobs/{ref}", { params: { path: { ref: from } } })).then(
        (job) => {
          setTenant(isAdmin() ? job.tenant : "");
          setText(documentOf(trimmed({ ...job.manifest, tenant: undefined })));
        },
        (reason: unknown) => setFailed(asRefused(reason)),
      );
    else if (wanted === "service") setText(TEMPLATES[TEMPLATES.length - 1]?.text ?? "");
  }, [from, wanted]);
  if (!mayChange())
    return (
      <div class="page">
        <Header title="New job" />
        <Empty title="Your token only reads">A member's token may submit jobs.</Empty>
      </div>
    );

  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setFailed(null);
    try {
      const query = tenant ? `?tenant=${encodeURIComponent(tenant)}` : "";
      const headers = { "content-type": "application/yaml", "idempotency-key": key };
      const answer = await send(`/v1/${service ? "services" : "jobs"}${query}`, { method: "POST", body: text, headers });
      const made = (await answer.json()) as { id: string; name: string; array?: { id: string; name: string } | null };
      announce("jobs", "services", "status");
      say(`${made.name} is ${service ? "deployed" : "submitted"}`);
      if (made.array) go(`${href("jobs")}?array=${encodeURIComponent(`${made.array.id}:${made.array.name}`)}`);
      else go(href(service ? "services" : "jobs", made.id));
    } catch (reason) {
      setFailed(asRefused(reason));
    }
    setBusy(false);
  };
  const wrong = new Set(check.error?.problems.flatMap((one) => lineOf(one.where) ?? []) ?? []);
  const insert = (hint: Hint): void => {
    const element = editor.current;
    if (!element) return;
    const lines = text.split("\n");
    const at = lines[line] ?? "";
    const indent = " ".repeat(2 * pathAt(lines, line).length);
    const added = `${indent}${hint.name}:${hint.nested ? "\n" + indent + "  " : " "}`;
    if (at.trim() === "") lines[line] = added;
    else lines.splice(line + 1, 0, added);
    setText(lines.join("\n"));
    element.focus();
  };
  return (
    <div class="page">
      <Header title={service ? "Deploy a service" : "New job"} sub="The server checks the manifest while you write. Nothing runs before you submit." />
      <form class="submit" onSubmit={submit}>
        <div class="stack">
          <div class="row-gap">
            <label class="row-gap">
              <span class="muted">Start from</span>
              <select
                onChange={(event) => {
                  const chosen = TEMPLATES.find((one) => one.name === event.currentTarget.value);
                  if (chosen) setText(chosen.text);
                }}
              >
                <option value="">a template</option>
                {TEMPLATES.map((one) => <option value={one.name}>{one.name}</option>)}
              </select>
            </label>
            {isAdmin() && <TenantChoice value={tenant} set={setTenant} />}
          </div>
          <Editor text={text} setText={setText} setLine={setLine} wrong={wrong} element={editor} />
          {failed && <Failure error={failed} />}
          <div class="row-gap">
            <button type="submit" class="button primary" disabled={busy || check.error !== null}>
              {service ? "Deploy" : "Submit"}
            </button>
            <span class="muted">Files beside the script come along with <code>shoal submit</code>.</span>
          </div>
        </div>
        <div class="stack">
          <Verdict check={check} service={service} />
          <Hints service={service} lines={text.split("\n")} line={line} insert={insert} />
        </div>
      </form>
    </div>
  );
}

/** One key for one text: pressing twice submits once. */
function newKey(): string {
  return `web-${[...crypto.getRandomValues(new Uint8Array(12))].map((one) => one.toString(16).padStart(2, "0")).join("")}`;
}

interface Checked {
  readonly waiting: boolean;
  readonly data: Check | null;
  readonly error: Refused | null;
}

function useCheck(text: string, tenant: string, service: boolean): Checked {
  const [checked, setChecked] = useState<Checked>({ waiting: true, data: null, error: null });
  useEffect(() => {
    const abort = new AbortController();
    setChecked((before) => ({ ...before, waiting: true }));
    const timer = setTimeout(async () => {
      const query = tenant ? `?tenant=${encodeURIComponent(tenant)}` : "";
      const path = `/v1/${service ? "service-manifests" : "manifests"}/check${query}`;
      try {
        const answer = await send(path, { method: "POST", body: text, signal: abort.signal, headers: { "content-type": "application/yaml" } });
        const data = (await answer.json()) as Check;
        if (!abort.signal.aborted) setChecked({ waiting: false, data, error: null });
      } catch (reason) {
        if (!abort.signal.aborted) setChecked({ waiting: false, data: null, error: asRefused(reason) });
      }
    }, CHECK_AFTER_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text, tenant, service]);
  return checked;
}

function TenantChoice({ value, set }: { value: string; set: (tenant: string) => void }) {
  const tenants = useLoad("tenant-names", () => ask(api.GET("/v1/tenants")), []);
  return (
    <label class="row-gap">
      <span class="muted">For tenant</span>
      <select value={value} onChange={(event) => set(event.currentTarget.value)}>
        <option value="">as the manifest says, or default</option>
        {tenants.data?.tenants.map((one) => <option value={one.name}>{one.name}</option>)}
      </select>
    </label>
  );
}

interface EditorGiven {
  readonly text: string;
  readonly setText: (text: string) => void;
  readonly setLine: (line: number) => void;
  readonly wrong: ReadonlySet<number>;
  readonly element: { current: HTMLTextAreaElement | null };
}

function Editor({ text, setText, setLine, wrong, element }: EditorGiven) {
  const gutter = useRef<HTMLDivElement>(null);
  const lines = text.split("\n");
  const place = (target: HTMLTextAreaElement): void => setLine(text.slice(0, target.selectionStart).split("\n").length - 1);
  const press = (event: KeyboardEvent): void => {
    const target = element.current;
    if (event.key !== "Enter" || event.shiftKey || event.ctrlKey || event.metaKey || !target) return;
    // A new line begins where the line before does, and deeper below a field that has no value yet.
    const before = text.slice(0, target.selectionStart);
    const line = before.slice(before.lastIndexOf("\n") + 1);
    const indent = " ".repeat(line.length - line.trimStart().length + (/:\s*$/.test(line) ? 2 : 0));
    if (!indent) return;
    event.preventDefault();
    target.setRangeText(`\n${indent}`, target.selectionStart, target.selectionEnd, "end");
    setText(target.value);
  };
  return (
    <div class="editor">
      <div class="editor-gutter" ref={gutter} aria-hidden="true">
        {lines.map((_, index) => (
          <span class={wrong.has(index + 1) ? "wrong" : ""}>{index + 1}</span>
        ))}
      </div>
      <textarea
        ref={element} aria-label="Manifest in YAML" spellcheck={false} autocapitalize="off" autocomplete="off" wrap="off" rows={Math.max(16, Math.min(34, lines.length + 2))}
        value={text} onInput={(event) => setText(event.currentTarget.value)} onKeyDown={press} onKeyUp={(event) => place(event.currentTarget)} onClick={(event) => place(event.currentTarget)}
        onScroll={(event) => {
          if (gutter.current) gutter.current.scrollTop = event.currentTarget.scrollTop;
        }}
      />
    </div>
  );
}

function Verdict({ check, service }: { check: Checked; service: boolean }) {
  const nodes = useLoad("free-devices", () => ask(api.GET("/v1/nodes")), ["nodes"]);
  const manifest = check.data?.manifest as Record<string, unknown> | undefined;
  const wants = manifest?.["resources"] as { accelerators?: { type?: string; count?: number }; cpus?: number; memory?: number } | undefined;
  const never = check.data?.remarks?.some((one) => one.code === "impossible") ?? false;
  return (
    <Card title="What would happen" side={check.waiting && <span class="spinner" aria-label="Checking" role="img" />}>
      <div class="stack" role="status">
        {check.error ? (
          <Problems error={check.error} />
        ) : check.data ? (
          <>
            <p>
              <span class={`chip ${never ? "bad" : "good"}`}>{never ? "would wait for ever" : "accepted"}</span> {check.data.name} of tenant {check.data.tenant}
            </p>
            {!service && wants && (
              <dl class="facts">
                <dt>Asks for</dt>
                <dd>
                  {[accelerators({ accelerators: { [wants.accelerators?.type ?? "any"]: wants.accelerators?.count ?? 0 } }), wants.cpus ? cores(wants.cpus * 1000) : "", wants.memory ? bytes(wants.memory) : ""].filter(Boolean).join(", ") || "nothing"}
                  {typeof manifest?.["ranks"] === "number" && manifest["ranks"] > 1 && ` for each of ${plural(manifest["ranks"], "rank")}`}
                </dd>
                {nodes.data && (
                  <>
                    <dt>Free now</dt>
                    <dd>{countDevices(nodes.data.nodes).map((one) => `${one.free} of ${one.all} ${one.type}`).join(", ") || "no accelerators here"}</dd>
                  </>
                )}
              </dl>
            )}
            {check.data.remarks?.map((one) => <p class={one.code === "impossible" ? "tone-bad" : ""}><Prose text={sentence(one.text)} /></p>)}
          </>
        ) : (
          <p class="muted">The server is asked …</p>
        )}
      </div>
    </Card>
  );
}

function Problems({ error }: { error: Refused }) {
  const problems = error.problems.length > 0 ? error.problems : [{ what: error.what, where: error.where, hint: error.hint }];
  return (
    <ul class="problems">
      {problems.slice(0, 12).map((one) => (
        <li>
          <strong>{lineOf(one.where) === null ? "" : `Line ${lineOf(one.where)}: `}<Prose text={one.what} /></strong>
          {one.hint && <span class="muted"><Prose text={one.hint} /></span>}
        </li>
      ))}
    </ul>
  );
}

function Hints({ service, lines, line, insert }: { service: boolean; lines: readonly string[]; line: number; insert: (hint: Hint) => void }) {
  const schema = useLoad(`schema ${service}`, async () => (await (await send(`/v1/${service ? "service-manifests" : "manifests"}/schema`)).json()) as Schema, []);
  if (!schema.data) return null;
  const path = pathAt(lines, line);
  const typed = /^\s*(?:- )?([\w-]*)/.exec(lines[line] ?? "")?.[1] ?? "";
  const all = hintsAt(schema.data, path);
  const present = all.find((one) => one.name === typed);
  const begun = typed && !present ? all.filter((one) => one.name.startsWith(typed)) : [];
  const others = begun.length > 0 ? begun : all.filter((one) => one !== present);
  if (all.length === 0) return null;
  return (
    <Card title={path.length > 0 ? `Fields of ${path.join(".")}` : "Fields"}>
      <dl class="hints">
        {[...(present ? [present] : []), ...others].map((one) => (
          <div class={one === present ? "hint hint-at" : "hint"}>
            <dt>
              <button type="button" class="link" onClick={() => insert(one)} title="Add this field">
                <code>{one.name}</code>
              </button>
            </dt>
            <dd>
              <Prose text={one.about} />
              {one.values.length > 0 && <span class="muted"> {one.values.join(", ")}</span>}
            </dd>
          </div>
        ))}
      </dl>
    </Card>
  );
}
