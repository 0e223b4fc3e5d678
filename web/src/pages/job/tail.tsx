import type { JobDetail } from "../../api/types";
import { textOf } from "../../lib/ansi";
import { href } from "../../lib/router";
import { useLog } from "../../live/log";
import { AnsiLine } from "../../ui/ansi";
import { Card } from "../../ui/parts";

const LINES = 10;

/** The last lines of the log, as they come. */
export function LogTail({ job }: { job: JobDetail }) {
  const log = useLog({ job: job.id, rank: 0, attempt: 0, tail: 40 }, 200);
  const written = log.lines.filter((line, place) => place < log.lines.length - 1 || textOf(line));
  const shown = written.slice(-LINES);
  return (
    <Card title="Log" side={<a href={href("jobs", job.id, "log")}>Whole log</a>}>
      {shown.length === 0 ? (
        <p class="muted">{log.ended ? "The job wrote nothing." : "Nothing written so far."}</p>
      ) : (
        <pre class="log-tail" tabIndex={0} aria-label="Last lines of the log">
          {shown.map((line) => (
            <div>
              <AnsiLine line={line} />
            </div>
          ))}
        </pre>
      )}
    </Card>
  );
}
