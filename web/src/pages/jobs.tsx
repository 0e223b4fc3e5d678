/** All jobs: filters in the address, a list of any length, and what can be done to several at once. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, ask } from "../api/client";
import { isFiltered, NONE, readFilters, writeFilters, type Filters } from "../lib/filters";
import { number, plural } from "../lib/format";
import { go, href, place, setQuery } from "../lib/router";
import { isJob, type Row } from "../lib/rows";
import { isAdmin, mayChange } from "../lib/session";
import { countGroups, GROUP_NAMES } from "../lib/states";
import { useLoad } from "../live/load";
import { Icon } from "../ui/icons";
import { Empty, Failure, Header, Loading } from "../ui/parts";
import { BulkBar } from "./jobs/bulk";
import { JobList, tasksOf } from "./jobs/list";
import { useRows } from "./jobs/rows";

export function Jobs() {
  const filters = readFilters(place.value.query);
  const set = (change: Partial<Filters>): void => setQuery(writeFilters({ ...filters, ...change }));
  const list = useRows(filters);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const key = writeFilters(filters);
  useEffect(() => setChosen(new Set()), [key]);
  const picked = useMemo(() => list.rows.filter((row) => chosen.has(row.id)), [list.rows, chosen]);

  return (
    <div class="page fill">
      <Header title={filters.array ? `Tasks of ${filters.array.name}` : "Jobs"}>
        {filters.array && (
          <a class="button" href={href("jobs")}>
            All jobs
          </a>
        )}
      </Header>
      <FilterBar filters={filters} set={set} />
      <div class="list">
        {picked.length > 0 && <BulkBar rows={picked} clear={() => setChosen(new Set())} done={list.reload} />}
        {list.error && list.rows.length === 0 ? (
          <Failure error={list.error} retry={list.reload} />
        ) : list.loading && list.rows.length === 0 ? (
          <Loading what="jobs" />
        ) : list.rows.length === 0 ? (
          <NoJobs filters={filters} />
        ) : (
          <JobList rows={list.rows} filters={filters} set={set} chosen={chosen} choose={setChosen} more={list.more} open={open} />
        )}
        {list.rows.length > 0 && (
          <div class="list-foot" role="status">
            {plural(list.rows.length, "row")}
            {list.hasMore && " so far; more come as you scroll"}
          </div>
        )}
      </div>
    </div>
  );
}

function open(row: Row): void {
  go(isJob(row) ? href("jobs", row.id) : tasksOf(row.array));
}

function FilterBar({ filters, set }: { filters: Filters; set: (change: Partial<Filters>) => void }) {
  const status = useLoad("status", () => ask(api.GET("/v1/status")), ["status"]);
  const counts = countGroups(status.data?.jobs ?? {});
  const [typed, setTyped] = useState(filters.search);
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  useEffect(() => setTyped(filters.search), [filters.search]);
  const type = (text: string): void => {
    setTyped(text);
    if (timer.current) clearTimeout(timer.current);
    timer.current = setTimeout(() => set({ search: text.trim() }), 200);
  };
  return (
    <>
      <div class="groups" role="group" aria-label="State">
        <button type="button" class="group" aria-pressed={filters.group === null} onClick={() => set({ group: null })}>
          All <b>{number(counts.all)}</b>
        </button>
        {GROUP_NAMES.map((name) => (
          <button type="button" class="group" aria-pressed={filters.group === name} onClick={() => set({ group: filters.group === name ? null : name })}>
            {name.charAt(0).toUpperCase() + name.slice(1)} <b>{number(counts[name])}</b>
          </button>
        ))}
      </div>
      <div class="filters">
        <div class="search">
          <Icon name="search" />
          <input type="search" aria-label="Search by name or id" placeholder="Name or id; * and ? match" value={typed} onInput={(event) => type(event.currentTarget.value)} />
          {!typed && <kbd aria-hidden="true">/</kbd>}
        </div>
        {isAdmin() && <TenantFilter value={filters.tenant} set={(tenant) => set({ tenant })} />}
        <select aria-label="Class" value={filters.jobClass} onChange={(event) => set({ jobClass: event.currentTarget.value })}>
          <option value="">Any class</option>
          <option value="guaranteed">Guaranteed</option>
          <option value="best-effort">Best-effort</option>
        </select>
        {isFiltered(filters) && (
          <button type="button" class="button small" onClick={() => setQuery(writeFilters(NONE))}>
            Clear
          </button>
        )}
      </div>
    </>
  );
}

function TenantFilter({ value, set }: { value: string; set: (tenant: string) => void }) {
  const tenants = useLoad("tenant-names", () => ask(api.GET("/v1/tenants")), []);
  return (
    <select aria-label="Tenant" value={value} onChange={(event) => set(event.currentTarget.value)}>
      <option value="">All tenants</option>
      {tenants.data?.tenants.map((one) => <option value={one.name}>{one.name}</option>)}
      {value && !tenants.data?.tenants.some((one) => one.name === value) && <option value={value}>{value}</option>}
    </select>
  );
}

function NoJobs({ filters }: { filters: Filters }) {
  if (isFiltered(filters))
    return (
      <Empty title="No job fits these filters">
        <button type="button" class="button" onClick={() => setQuery(writeFilters(NONE))}>
          Show all jobs
        </button>
      </Empty>
    );
  return (
    <Empty title="No jobs yet">
      <p>
        A job is a command with what it needs. From a terminal: <code>shoal run python3 train.py</code>
      </p>
      {mayChange() && (
        <a class="button primary" href={href("submit")}>
          Submit the first job
        </a>
      )}
    </Empty>
  );
}

