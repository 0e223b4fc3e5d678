/** A job's log: live, searchable, wrapped or not, followed until the reader scrolls away. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { JobDetail } from "../../api/types";
import { findHits, mark, type Hit } from "../../lib/marks";
import { textOf } from "../../lib/ansi";
import { number } from "../../lib/format";
import { useLog } from "../../live/log";
import { AnsiLine } from "../../ui/ansi";
import { Icon } from "../../ui/icons";
import { Empty, Failure, Loading } from "../../ui/parts";
import { useVirtual } from "../../ui/virtual";

const LINE = 19;

export function Log({ job }: { job: JobDetail }) {
  const [rank, setRank] = useState(0);
  const [attempt, setAttempt] = useState(0);
  const [tail, setTail] = useState(5000);
  const [wrap, setWrap] = useState(true);
  const [follow, setFollow] = useState(true);
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const log = useLog({ job: job.id, rank, attempt, tail });
  const hits = useMemo(() => findHits(log.lines, typed), [log.version, typed]);
  const here = hits[Math.min(at, hits.length - 1)] ?? null;
  const step = (by: number): void => {
    if (hits.length === 0) return;
    setFollow(false);
    setAt((Math.min(at, hits.length - 1) + by + hits.length) % hits.length);
  };
  return (
    <>
      <div class="log-bar" role="toolbar" aria-label="Log">
        <div class="search log-search">
          <Icon name="search" />
          <input
            type="search" aria-label="Search in the log" placeholder="Search the log" value={typed}
            onInput={(event) => {
              setTyped(event.currentTarget.value);
              setAt(0);
              if (event.currentTarget.value) setFollow(false);
            }}
            onKeyDown={(event) => {
              if (event.key !== "Enter") return;
              event.preventDefault();
              step(event.shiftKey ? -1 : 1);
            }}
          />
        </div>
        {typed && (
          <span class="muted nowrap" role="status">
            {hits.length === 0 ? "not found" : `${number(Math.min(at, hits.length - 1) + 1)} of ${hits.length >= 10_000 ? "10,000 or more" : number(hits.length)}`}
          </span>
        )}
        {typed && hits.length > 0 && (
          <>
            <button type="button" class="icon-button" aria-label="Find the one before" onClick={() => step(-1)}><Icon name="up" /></button>
            <button type="button" class="icon-button" aria-label="Find the next" onClick={() => step(1)}><Icon name="end" /></button>
          </>
        )}
        <span class="log-gap" />
        {job.attempt > 1 && (
          <select aria-label="Attempt" value={attempt} onChange={(event) => setAttempt(Number(event.currentTarget.value))}>
            <option value={0}>Newest attempt</option>
            {Array.from({ length: job.attempt }, (_, index) => <option value={job.attempt - index}>Attempt {job.attempt - index}</option>)}
          </select>
        )}
        {job.ranks > 1 && (
          <label class="row-gap">
            <span class="muted">Rank</span>
            <input class="rank" type="number" min={0} max={job.ranks - 1} value={rank} onChange={(event) => setRank(Math.max(0, Math.min(job.ranks - 1, Number(event.currentTarget.value))))} />
          </label>
        )}
        <button type="button" class="button small" aria-pressed={wrap} onClick={() => setWrap(!wrap)}><Icon name="wrap" /> Wrap</button>
        <button type="button" class="button small" aria-pressed={follow} onClick={() => setFollow(!follow)}><Icon name="end" /> Follow</button>
        <a class="button small" href={`/v1/jobs/${job.id}/logs?rank=${rank}&limit=4194304${attempt ? `&attempt=${attempt}` : ""}`} download={`${job.name}-${job.id}.log`}><Icon name="download" /> Save</a>
      </div>
      {log.error && <Failure error={log.error} />}
      {log.cut && (
        <p class="muted">
          Only the last lines are shown. <button type="button" class="button small" onClick={() => setTail(Math.min(100_000, tail * 5))}>Show earlier ones</button>
        </p>
      )}
      {log.version === 0 ? (
        <Loading what="the log" />
      ) : log.lines.length === 0 || (log.lines.length === 1 && !textOf(log.lines[0] ?? [])) ? (
        <Empty title={log.ended ? "The job wrote nothing" : job.attempt === 0 ? "No log yet: the job has not started" : "Nothing written so far"} />
      ) : (
        <Lines lines={log.lines} version={log.version} wrap={wrap} follow={follow} setFollow={setFollow} hits={hits} here={here} ended={log.ended} cut={log.cut} />
      )}
    </>
  );
}

interface LinesGiven {
  readonly lines: ReturnType<typeof useLog>["lines"];
  readonly version: number;
  readonly wrap: boolean;
  readonly follow: boolean;
  readonly setFollow: (follow: boolean) => void;
  readonly hits: readonly Hit[];
  readonly here: Hit | null;
  readonly ended: boolean;
  readonly cut: boolean;
}

function Lines({ lines, version, wrap, follow, setFollow, hits, here, ended, cut }: LinesGiven) {
  const scroller = useRef<HTMLDivElement>(null);
  const count = lines.length > 1 && (lines[lines.length - 1]?.length ?? 0) === 0 ? lines.length - 1 : lines.length;
  const virtual = useVirtual({ count, scroller: () => scroller.current, rowHeight: LINE });
  const widest = useMemo(() => lines.reduce((most, line) => Math.max(most, textOf(line).length), 0), [version]);
  useEffect(() => virtual.measure(), [wrap]);
  useEffect(() => {
    if (follow && count > 0) virtual.scrollToIndex(count - 1, { align: "end" });
  }, [version, follow, count, wrap]);
  useEffect(() => {
    if (here) virtual.scrollToIndex(here.line, { align: "center" });
  }, [here?.line, here?.from]);
  const byLine = useMemo(() => {
    const found = new Map<number, Hit[]>();
    for (const hit of hits) found.set(hit.line, [...(found.get(hit.line) ?? []), hit]);
    return found;
  }, [hits]);
  const wheel = (event: WheelEvent): void => {
    if (event.deltaY < 0 && follow) setFollow(false);
  };
  const digits = String(count).length;
  return (
    <div class={`log ${wrap ? "log-wrap" : ""}`} ref={scroller} tabIndex={0} role="log" aria-label="Output of the job" aria-live="off" onWheel={wheel} onKeyDown={(event) => /^(ArrowUp|PageUp|Home)$/.test(event.key) && setFollow(false)} onTouchMove={() => follow && setFollow(false)}>
      <div class="list-space" style={{ height: `${virtual.getTotalSize()}px`, minWidth: wrap ? "" : `${widest + digits + 4}ch` }}>
        {virtual.getVirtualItems().map((item) => {
          const line = lines[item.index] ?? [];
          const found = byLine.get(item.index);
          return (
            <div key={item.index} data-index={item.index} ref={(element) => { if (element) virtual.measureElement(element); }} class="log-line" style={{ transform: `translateY(${item.start}px)` }}>
              {cut ? <span class="log-edge" /> : <span class="log-number" style={{ width: `${digits + 1}ch` }} aria-hidden="true">{item.index + 1}</span>}
              <span class="log-text"><AnsiLine line={found ? mark(line, found, here) : line} /></span>
            </div>
          );
        })}
      </div>
      {ended && <p class="log-end">End of the log</p>}
    </div>
  );
}
