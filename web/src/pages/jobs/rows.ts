/** The rows that are loaded: pages of the API's listing, the visible one read again on news. */
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, ask, type Refused } from "../../api/client";
import { jobQuery, looksLikeId, matches, writeFilters, type Filters } from "../../lib/filters";
import { isJob, merge, rowsOf, type Row } from "../../lib/rows";
import { asRefused } from "../../live/load";
import { news } from "../../live/news";

/** Rows of an answer: more of the list, and what can be seen of it, which is read again on news. */
const PAGE = 500;
const SEEN = 120;

export interface Rows {
  readonly rows: readonly Row[];
  readonly loading: boolean;
  readonly error: Refused | null;
  readonly hasMore: boolean;
  /** Called with the part that is seen: loads what follows, and knows what to refresh. */
  readonly more: (first: number, last: number) => void;
  readonly reload: () => void;
}

interface State {
  readonly key: string;
  readonly rows: readonly Row[];
  readonly next: string | null;
  readonly error: Refused | null;
}

async function read(filters: Filters, before: string | null, limit: number): Promise<{ rows: Row[]; next: string | null }> {
  if (!before && looksLikeId(filters.search)) {
    const found = await api.GET("/v1/jobs/{ref}", { params: { path: { ref: filters.search.trim() } } });
    return { rows: found.data ? [{ id: found.data.id, job: found.data }] : [], next: null };
  }
  const answer = await ask(api.GET("/v1/jobs", { params: { query: jobQuery(filters, limit, before) as never } }));
  return { rows: rowsOf(answer), next: answer.next ?? null };
}

export function useRows(filters: Filters): Rows {
  const key = writeFilters(filters);
  const [state, setState] = useState<State>({ key: "\u0000", rows: [], next: null, error: null });
  const latest = useRef(state);
  latest.current = state;
  const seen = useRef({ first: 0, last: 0 });
  const busy = useRef<string | null>(null);
  const again = useRef(false);

  const run = useCallback(
    async (start: number, append: boolean): Promise<void> => {
      if (busy.current === key) {
        again.current ||= !append;
        return;
      }
      busy.current = key;
      const known = latest.current.key === key ? latest.current : { rows: [], next: null };
      const before = append ? known.next : start > 0 ? (known.rows[start - 1]?.id ?? null) : null;
      try {
        const fresh = await read(filters, before, append ? PAGE : SEEN);
        if (busy.current !== key) return;
        const at = append ? known.rows.length : start;
        const { rows, cut } = merge(known.rows, at, fresh.rows);
        const ends = append || cut || known.rows.length === 0 || at + fresh.rows.length >= rows.length;
        setState({ key, rows, next: ends ? fresh.next : known.next, error: null });
      } catch (reason) {
        if (busy.current === key) setState({ key, rows: known.rows, next: known.next, error: asRefused(reason) });
      }
      busy.current = null;
      if (again.current) {
        again.current = false;
        void run(startOf(seen.current.first), false);
      }
    },
    [key],
  );

  useEffect(() => {
    busy.current = null;
    seen.current = { first: 0, last: 0 };
    void run(0, false);
  }, [run]);
  const turn = news.jobs.value;
  const first = useRef(turn);
  useEffect(() => {
    if (turn === first.current) return;
    first.current = turn;
    void run(startOf(seen.current.first), false);
  }, [turn, run]);

  const more = useCallback(
    (top: number, last: number) => {
      seen.current = { first: top, last };
      const { rows, next, key: of } = latest.current;
      if (of === key && next && last > rows.length - 60) void run(0, true);
    },
    [run, key],
  );
  const current = state.key === key;
  const rows = useMemo(() => (current ? state.rows.filter((row) => fits(filters, row)) : []), [current, state.rows, key]);
  useEffect(() => {
    // A filter of the page's own may leave little of what was loaded: then the next page is needed at once.
    if (current && rows.length < 100 && state.next) void run(0, true);
  }, [rows.length, state.next, current, run]);
  return { rows, loading: !current, error: current ? state.error : null, hasMore: current && state.next !== null, more, reload: () => void run(0, false) };
}

/** Where the part to refresh begins: a little above what is seen, or at the top. */
const startOf = (first: number): number => (first < SEEN / 2 ? 0 : first - 30);

const fits = (filters: Filters, row: Row): boolean => (isJob(row) ? matches(filters, row.job) : !filters.jobClass);
