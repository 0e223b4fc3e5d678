/** A component's page, from what it declares: figures, tables, values over time, timelines, and what may be done. */
import { useMemo, useState } from "preact/hooks";
import { api, ask, send } from "../api/client";
import type { Action, Page, PageSeries, PageTable } from "../api/types";
import { number, sentence } from "../lib/format";
import { mayChange } from "../lib/session";
import { commandLine, hasPoints, isLong, isNumeric, isOwn, sortRows, spansOf, write, type Direction } from "../lib/view";
import { useLoad } from "../live/load";
import { announce, now } from "../live/news";
import { askFirst } from "../ui/dialog";
import { LazyPlot } from "../ui/lazy-plot";
import { Card, Command, Empty, Header, Pending, Prose } from "../ui/parts";
import { say } from "../ui/toast";
import { Timeline } from "../ui/timeline";

const EVERY_MS = 5000;

export function ComponentPage({ path }: { path: readonly string[] }) {
  const name = path[0] ?? "";
  const { data, error, reload } = useLoad(
    `page ${name}`, (signal) => ask(api.GET("/v1/pages/{component}", { params: { path: { component: name } }, signal })), ["pages"], EVERY_MS,
  );
  if (!data)
    return (
      <div class="page">
        <h1 class="hidden-text">{name}</h1>
        <Pending error={error} what="the page" retry={reload} />
      </div>
    );
  const bare = !data.figures?.length && !data.parts?.length;
  return (
    <div class="page">
      <Header title={data.title} />
      {bare && <Empty title="There is nothing to show yet" />}
      <PageParts page={data} done={reload} />
    </div>
  );
}

export function PageParts({ page, done }: { page: Page; done: () => void }) {
  return (
    <>
      <Figures figures={page.figures ?? []} />
      {page.parts?.map((part) => {
        if (part.kind === "series") return <Series series={part} />;
        if (part.kind === "timeline")
          return (
            <Card title={part.title}>
              <Timeline spans={spansOf(part.spans)} label={part.title} />
            </Card>
          );
        return <TableCard table={part} />;
      })}
      <Actions actions={page.actions ?? []} done={done} />
    </>
  );
}

export function Actions({ actions, done }: { actions: readonly Action[]; done: () => void }) {
  if (actions.length === 0) return null;
  return (
    <Card title="What can be done">
      <ul class="stack">
        {actions.map((action) => (
          <li class="row-gap">
            {mayChange() && isOwn(action) && (
              <button type="button" class="button small" onClick={() => run(action, done)}>
                {sentence(action.name)}
              </button>
            )}
            <Command line={commandLine(action.command)} />
          </li>
        ))}
      </ul>
    </Card>
  );
}

function run(action: Action, done: () => void): void {
  askFirst({
    title: `${sentence(action.name)}?`,
    text: (
      <>
        <p>{action.warning || action.note || "This changes the server at once."}</p>
        <p class="muted">
          The same in a terminal: <code>{commandLine(action.command)}</code>
        </p>
      </>
    ),
    act: sentence(action.name),
    destructive: action.method === "DELETE" || Boolean(action.warning),
    run: async () => {
      await send(action.path, { method: action.method });
      say(`Done: ${action.name}`);
      announce("pages", "status", "jobs", "services");
      done();
    },
  });
}

export function Figures({ figures }: { figures: NonNullable<Page["figures"]> }) {
  if (figures.length === 0) return null;
  return (
    <dl class="figures">
      {figures.map((one) => (
        <div class={`figure figure-${one.mood ?? "plain"} ${isLong(one) ? "long" : ""}`}>
          <dt>{sentence(one.name)}</dt>
          <dd><Prose text={write(one.value, one.unit, now.value)} /></dd>
        </div>
      ))}
    </dl>
  );
}

function Series({ series }: { series: PageSeries }) {
  const unit = series.unit ?? "";
  const writeValue = useMemo(() => (value: number): string => (unit === "" ? number(value) : write(value, unit, 0)), [unit]);
  return (
    <Card title={series.title}>
      {hasPoints(series) ? <LazyPlot title={series.title} lines={series.lines} write={writeValue} /> : <p class="muted">No values yet.</p>}
    </Card>
  );
}

const ROWS = 200;

export function TableCard({ table }: { table: PageTable }) {
  const [order, setOrder] = useState<{ column: number; direction: Direction } | null>(null);
  const [all, setAll] = useState(false);
  const rows = table.rows ?? [];
  const sorted = order ? sortRows(rows, order.column, order.direction) : rows;
  const shown = all ? sorted : sorted.slice(0, ROWS);
  const press = (column: number): void =>
    setOrder(order?.column !== column ? { column, direction: "up" } : order.direction === "up" ? { column, direction: "down" } : null);
  return (
    <Card title={table.title} side={rows.length > 8 && <span>{number(rows.length)}</span>}>
      {rows.length === 0 ? (
        <p class="muted"><Prose text={sentence(table.empty ?? "none")} /></p>
      ) : (
        <div class="table-scroll" tabIndex={0} role="group" aria-label={table.title}>
          <table class="grid">
            <thead>
              <tr>
                {table.columns.map((column, place) => (
                  <th scope="col" class={isNumeric(rows, place) ? "right" : ""} aria-sort={order?.column === place ? (order.direction === "up" ? "ascending" : "descending") : "none"}>
                    <button type="button" class="sorter" onClick={() => press(place)}>
                      {sentence(column.name)}
                      {order?.column === place && <span aria-hidden="true"> {order.direction === "up" ? "↑" : "↓"}</span>}
                    </button>
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {shown.map((row) => (
                <tr>
                  {table.columns.map((column, place) => {
                    const text = write(row[place], column.unit, now.value);
                    const kind = isNumeric(rows, place) ? "right nowrap" : text.length > 30 ? "wide" : "";
                    return place === 0 ? <th scope="row"><bdi>{text}</bdi></th> : <td class={kind}><bdi class={text === "–" ? "none" : ""}>{text}</bdi></td>;
                  })}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {rows.length > ROWS && !all && <button type="button" class="button small" onClick={() => setAll(true)}>Show all {number(rows.length)}</button>}
    </Card>
  );
}
