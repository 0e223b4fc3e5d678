/** What was when: one bar for each span, lane by lane, above an axis in the reader's time zone. */
import { duration, moment } from "../lib/format";
import { layOut, ticks, type SpanGiven } from "../lib/timeline";
import { now } from "../live/news";

const ZONE_S = new Date().getTimezoneOffset() * 60;

export function Timeline({ spans, label }: { spans: readonly SpanGiven[]; label: string }) {
  const present = now.value;
  const { from, to, lanes } = layOut(spans, present);
  if (lanes.length === 0) return <p class="muted">Nothing has happened yet.</p>;
  const exact = to - from < 600;
  const percent = (part: number): string => `${(part * 100).toFixed(3)}%`;
  return (
    <div class="timeline" role="group" aria-label={label}>
      <ul class="tl-lanes">
        {lanes.map((lane) => (
          <li class="tl-lane">
            <span class="tl-name">
              <bdi>{lane.name}</bdi>
            </span>
            <ul class="tl-track" style={{ height: `${lane.rows * 22}px` }}>
              {lane.placed.map(({ span, left, width, row }) => {
                const length = duration(Math.max(0, (span.end ?? present) - span.start));
                const text = `${span.name}: ${span.end == null ? `for ${length} until now` : length}, from ${moment(span.start, present, true)}`;
                return (
                  <li class={`tl-span tl-${span.mood ?? "plain"} ${span.end == null ? "tl-open" : ""}`} style={{ left: percent(left), width: percent(width), top: `${row * 22}px` }} title={text}>
                    <span class="tl-text" aria-hidden="true">{span.name}</span>
                    <span class="hidden-text">{text}</span>
                  </li>
                );
              })}
            </ul>
          </li>
        ))}
      </ul>
      <div class="tl-axis" aria-hidden="true">
        {ticks(from, to, 6, ZONE_S).map((at) => (
          <span style={{ left: percent((at - from) / (to - from)) }}>{moment(at, present, exact)}</span>
        ))}
      </div>
    </div>
  );
}
