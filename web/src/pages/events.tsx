/** History: who did what, when and why. */
import { useState } from "preact/hooks";
import type { Event } from "../api/types";
import { fullTime, moment } from "../lib/format";
import { href } from "../lib/router";
import { readEvents } from "../live/events";
import { useLoad } from "../live/load";
import { now } from "../live/news";
import { Icon } from "../ui/icons";
import { Card, Empty, Header, Name, Pending, Prose } from "../ui/parts";

const LAST = 500;

export function Events(_: { path: readonly string[] }) {
  return (
    <div class="page">
      <Header title="Events" sub="What happened, newest first: by whom, and why." />
      <Card label="Events">
        <EventList of={{}} />
      </Card>
    </div>
  );
}

export function EventList({ of }: { of: { job?: string; service?: string } }) {
  const [typed, setTyped] = useState("");
  const own = of.job ?? of.service;
  const { data, error, reload } = useLoad(`events ${own ?? ""}`, async (signal) => (await readEvents(of, LAST, signal)).reverse(), own ? ["jobs", "services"] : ["events"]);
  if (!data) return <Pending error={error} what="events" retry={reload} />;
  const wanted = typed.trim().toLowerCase();
  const shown = wanted ? data.filter((one) => textOf(one).includes(wanted)) : data;
  if (data.length === 0) return <Empty title="Nothing has happened yet" />;
  return (
    <>
      <div class="search event-search">
        <Icon name="search" />
        <input type="search" aria-label="Search events" placeholder="Kind, cause, who, job" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
      </div>
      {shown.length === 0 && <Empty title="No event has this in it" />}
      <ol class="events">
        {shown.map((one) => (
          <li key={one.seq} class="event">
            <time dateTime={new Date(one.at * 1000).toISOString()} title={fullTime(one.at)}>{moment(one.at, now.value, true)}</time>
            <span class="event-what">
              <strong>{title(one)}</strong>
              {!own && one.job_id && <a href={href("jobs", one.job_id)}>{one.job_id}</a>}
              {!own && !one.job_id && one.owner_id && <code>{one.owner_id}</code>}
              {one.attempt != null && one.attempt > 1 && <span class="chip">attempt {one.attempt}</span>}
            </span>
            <span class="event-why"><Prose text={one.cause} /></span>
            <span class="muted event-who">
              {one.actor}
              {!own && one.tenant && <> · <Name>{one.tenant}</Name></>}
            </span>
          </li>
        ))}
      </ol>
      {data.length >= LAST && <p class="muted">The last {LAST} are shown. <code>shoal events</code> lists all.</p>}
    </>
  );
}

const textOf = (one: Event): string => [one.kind, one.cause, one.actor, one.tenant, one.job_id, one.new_state].join(" ").toLowerCase();

function title(one: Event): string {
  if (one.kind === "job.state" && one.new_state) return one.new_state.charAt(0) + one.new_state.slice(1).toLowerCase();
  const words = one.kind.replace(".", " ").replaceAll(/[-_]/g, " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}
