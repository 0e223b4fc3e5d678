/** The list itself: a grid of rows of which only the visible ones are in the document, moved through by arrow keys. */
import { memo } from "preact/compat";
import { useCallback, useEffect, useId, useRef, useState } from "preact/hooks";
import type { Job, JobArray } from "../../api/types";
import { NONE, writeFilters, type Filters, type Order } from "../../lib/filters";
import { accelerators, duration, number, plural } from "../../lib/format";
import { href } from "../../lib/router";
import { isJob, noteOf, ranS, waitedS, type Row } from "../../lib/rows";
import { isAdmin } from "../../lib/session";
import { countGroups, ended, GROUP_NAMES, type Group } from "../../lib/states";
import { now } from "../../live/news";
import { Icon } from "../../ui/icons";
import { Ago, Name, State } from "../../ui/parts";
import { useVirtual } from "../../ui/virtual";
import { useNarrow } from "../../ui/narrow";

interface Given {
  readonly rows: readonly Row[];
  readonly filters: Filters;
  readonly set: (change: Partial<Filters>) => void;
  readonly chosen: ReadonlySet<string>;
  readonly choose: (chosen: ReadonlySet<string>) => void;
  readonly more: (first: number, last: number) => void;
  readonly open: (row: Row) => void;
}

export function JobList({ rows, filters, set, chosen, choose, more, open }: Given) {
  const scroller = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState(-1);
  const anchor = useRef(-1);
  const narrow = useNarrow();
  const id = useId();
  const virtual = useVirtual({ count: rows.length, scroller: () => scroller.current, rowHeight: narrow ? 60 : 36 });
  useEffect(() => virtual.measure(), [narrow]);
  const items = virtual.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const last = items[items.length - 1]?.index ?? 0;
  useEffect(() => more(first, last), [first, last, rows.length, more]);

  const toggle = (index: number, range: boolean): void => {
    const next = new Set(chosen);
    const on = !next.has(rows[index]?.id ?? "");
    const from = range && anchor.current >= 0 ? anchor.current : index;
    for (let i = Math.min(from, index); i <= Math.max(from, index); i++) {
      const row = rows[i];
      if (row && on) next.add(row.id);
      else if (row) next.delete(row.id);
    }
    anchor.current = index;
    choose(next);
  };
  const move = (to: number): void => {
    const next = Math.max(0, Math.min(rows.length - 1, to));
    setAt(next);
    virtual.scrollToIndex(next, { align: "auto" });
  };
  const press = (event: KeyboardEvent): void => {
    if (event.target instanceof HTMLInputElement && event.key === " ") return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps: Record<string, number> = {
      ArrowDown: at + 1, j: at + 1, ArrowUp: at - 1, k: at - 1, PageDown: at + 15, PageUp: at - 15, Home: 0, End: rows.length - 1,
    };
    const row = rows[at];
    if (event.key in steps) move(steps[event.key] ?? 0);
    else if (event.key === "Enter" && row) open(row);
    else if ((event.key === " " || event.key === "x") && row) toggle(at, event.shiftKey);
    else return;
    event.preventDefault();
  };
  const latest = useRef<Acts>({ toggle, choose: setAt, open });
  latest.current = { toggle, choose: setAt, open };
  const act = useCallback(() => latest.current, []);
  const admin = isAdmin();
  const kind = `job-row ${admin ? "" : "no-tenant"}`;
  const all = rows.length > 0 && chosen.size >= rows.length;
  return (
    <div class="list-grid" role="grid" aria-label="Jobs" aria-rowcount={rows.length + 1} aria-multiselectable="true">
      <div role="rowgroup">
        <div class={`${kind} job-head`} role="row" aria-rowindex={1}>
          <span class="pick" role="columnheader">
            <input type="checkbox" aria-label="Choose all rows that are loaded" checked={all} onChange={() => choose(new Set(all ? [] : rows.map((row) => row.id)))} />
          </span>
          <Sorted order="name" label="Name" filters={filters} set={set} />
          <Sorted order="state" label="State" filters={filters} set={set} />
          <span role="columnheader">How it is</span>
          {admin && <span role="columnheader">Tenant</span>}
          <span role="columnheader">Devices</span>
          <Sorted order="waited" label="Waited" filters={filters} set={set} />
          <Sorted order="ran" label="Ran" filters={filters} set={set} />
          <Sorted order="submitted" label="Submitted" filters={filters} set={set} />
        </div>
      </div>
      <div class="list-scroll" ref={scroller} role="rowgroup" tabIndex={0} aria-label="Rows: arrow keys move, Enter opens, x chooses" aria-activedescendant={at >= 0 ? `${id}-${at}` : undefined} onKeyDown={press}>
        <div class="list-space" role="presentation" style={{ height: `${virtual.getTotalSize()}px` }}>
          {items.map((item) => {
            const row = rows[item.index];
            if (!row) return null;
            return (
              <Line key={row.id} row={row} id={`${id}-${item.index}`} index={item.index} start={item.start} kind={kind} admin={admin} at={item.index === at} chosen={chosen.has(row.id)} act={act} />
            );
          })}
        </div>
      </div>
    </div>
  );
}

interface Acts {
  readonly toggle: (index: number, range: boolean) => void;
  readonly choose: (index: number) => void;
  readonly open: (row: Row) => void;
}

interface LineGiven {
  readonly row: Row;
  readonly id: string;
  readonly index: number;
  readonly start: number;
  readonly kind: string;
  readonly admin: boolean;
  readonly at: boolean;
  readonly chosen: boolean;
  readonly act: () => Acts;
}

/** One row. It is drawn again only when something of it changes: scrolling moves the others untouched. */
const Line = memo(({ row, id, index, start, kind, admin, at, chosen, act }: LineGiven) => (
  <div
    id={id} role="row" aria-rowindex={index + 2} aria-selected={chosen} class={`${kind} job-line ${at ? "at" : ""} ${chosen ? "chosen" : ""}`}
    style={{ transform: `translateY(${start}px)` }}
    onClick={(event) => {
      act().choose(index);
      if (event.detail === 2 && event.target instanceof Element && !event.target.closest("a, input")) act().open(row);
    }}
  >
    <span class="pick" role="gridcell">
      <input
        type="checkbox" tabIndex={-1} aria-label={`Choose ${isJob(row) ? row.job.name : row.array.name}`} checked={chosen}
        onClick={(event) => act().toggle(index, event.shiftKey)}
      />
    </span>
    {isJob(row) ? <JobCells job={row.job} admin={admin} /> : <ArrayCells array={row.array} admin={admin} />}
  </div>
));

function Waited({ job }: { job: Job }) {
  const waited = waitedS(job, job.state === "QUEUED" ? now.value : 0);
  return waited >= 0.5 ? <>{duration(Math.round(waited))}</> : <span class="none">–</span>;
}

function Ran({ job }: { job: Job }) {
  const ran = ranS(job, ended(job.state) ? 0 : now.value);
  return ran === null ? <span class="none">–</span> : <>{duration(ran >= 10 ? Math.floor(ran) : ran)}</>;
}

function Sorted({ order, label, filters, set }: { order: Order; label: string; filters: Filters; set: (change: Partial<Filters>) => void }) {
  const on = filters.order === order;
  const down = order !== "name" && order !== "state";
  return (
    <span role="columnheader" aria-sort={on ? (down ? "descending" : "ascending") : "none"}>
      <button type="button" onClick={() => set({ order: on ? "submitted" : order })}>
        {label} {on && <span aria-hidden="true">{down ? "↓" : "↑"}</span>}
      </button>
    </span>
  );
}

function JobCells({ job, admin }: { job: Job; admin: boolean }) {
  const note = noteOf(job);
  return (
    <>
      <span class="job-name" role="gridcell">
        <a href={href("jobs", job.id)} tabIndex={-1} title={`${job.name} (${job.id})`}>
          <Name>{job.name}</Name>
        </a>
        {job.priority_class === "guaranteed" && (
          <span class="guaranteed" title="Guaranteed: runs as if it were alone">
            <Icon name="guaranteed" />
            <span class="hidden-text">guaranteed</span>
          </span>
        )}
      </span>
      <span role="gridcell">
        <State state={job.state} />
      </span>
      <span class="job-note c-note" role="gridcell" title={note}>
        <bdi>{note}</bdi>
      </span>
      {admin && (
        <span class="c-tenant" role="gridcell">
          <Name>{job.tenant}</Name>
        </span>
      )}
      <span class="c-devices" role="gridcell">{accelerators(job.resources, job.ranks) || <span class="none">–</span>}</span>
      <span class="c-waited" role="gridcell"><Waited job={job} /></span>
      <span class="c-ran" role="gridcell"><Ran job={job} /></span>
      <span class="c-submitted muted" role="gridcell">
        <Ago at={job.submitted_at} />
      </span>
    </>
  );
}

/** The address of an array's tasks. */
export function tasksOf(array: JobArray): string {
  return `${href("jobs")}?${writeFilters({ ...NONE, array: { id: array.id, name: array.name } })}`;
}

const FILL: Record<Group, string> = {
  succeeded: "fill-good", failed: "fill-bad", running: "fill-active", suspended: "fill-warning", cancelled: "fill-plain", waiting: "fill-waiting",
};

function ArrayCells({ array, admin }: { array: JobArray; admin: boolean }) {
  const counts = countGroups(array.states ?? {});
  const said = GROUP_NAMES.filter((name) => counts[name] > 0).map((name) => `${number(counts[name])} ${name}`).join(", ");
  return (
    <>
      <span class="job-name" role="gridcell">
        <a href={tasksOf(array)} tabIndex={-1} title={`${array.name} (${array.id})`}>
          <Name>{array.name}</Name>
        </a>
        <span class="chip" title={`Indices ${array.indices}`}>{plural(array.tasks, "task")}</span>
      </span>
      <span role="gridcell">
        <span class="fold" role="img" aria-label={said}>
          {(["succeeded", "failed", "cancelled", "running", "suspended", "waiting"] as const).map((name) => (
            <span class={FILL[name]} style={{ width: `${(counts[name] / Math.max(1, counts.all)) * 100}%` }} />
          ))}
        </span>
      </span>
      <span class="job-note c-note" role="gridcell" title={said}>{said}</span>
      {admin && (
        <span class="c-tenant" role="gridcell">
          <Name>{array.tenant}</Name>
        </span>
      )}
      <span class="c-devices muted" role="gridcell">{array.limit ? `${array.limit} at a time` : ""}</span>
      <span class="c-waited" role="gridcell" />
      <span class="c-ran" role="gridcell" />
      <span class="c-submitted muted" role="gridcell">
        <Ago at={array.submitted_at} />
      </span>
    </>
  );
}
