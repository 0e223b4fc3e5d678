import { useMemo } from "preact/hooks";
import { api, ask } from "../api/client";
import type { ServiceDetail } from "../api/types";
import { duration, number, plural, resources, share } from "../lib/format";
import { trimmed } from "../lib/manifest";
import { go, href } from "../lib/router";
import { causesOf, kept, objectiveOf, splitsOf, withNewest, type Sample } from "../lib/services";
import { mayChange } from "../lib/session";
import { documentOf } from "../lib/yaml";
import { useLoad } from "../live/load";
import { announce } from "../live/news";
import { askFirst } from "../ui/dialog";
import { LazyPlot } from "../ui/lazy-plot";
import { Ago, Card, Copy, Header, Name, Pending, State } from "../ui/parts";
import { Tabs } from "../ui/tabs";
import { say } from "../ui/toast";
import { EventList } from "./events";

const TABS = [["", "Overview"], ["events", "Events"], ["manifest", "Manifest"]] as const;

export function ServicePage({ path }: { path: readonly string[] }) {
  const ref = path[0] ?? "";
  const tab = path[1] ?? "";
  const { data, error, reload } = useLoad(`service ${ref}`, (signal) => ask(api.GET("/v1/services/{ref}", { params: { path: { ref } }, signal })), ["services"], 3000);
  if (!data)
    return (
      <div class="page">
        <h1 class="hidden-text">Service {ref}</h1>
        <Pending error={error} what="the service" retry={reload} />
      </div>
    );
  const over = data.state === "STOPPED";
  return (
    <div class="page">
      <Header
        title={<Name>{data.name}</Name>}
        sub={
          <>
            <State state={data.state} />
            <span class="row-gap tight"><code>{data.id}</code><Copy text={data.id} label="Copy the service's id" /></span>
            <span>Tenant <Name>{data.tenant}</Name></span>
            <span>{data.priority_class}</span>
            <span>{data.ready} of {plural(data.replicas, "replica")} ready</span>
            <span>Deployed <Ago at={data.created_at} /></span>
          </>
        }
      >
        {mayChange() && !over && (
          <>
            <button type="button" class="button" onClick={() => scale(data, reload)}>Scale</button>
            <button type="button" class="button" onClick={() => stop(data)}>Stop</button>
          </>
        )}
      </Header>
      <Tabs base={["services", data.id]} tabs={TABS} at={tab} label="Parts of the service" />
      {tab === "" && <Overview service={data} />}
      {tab === "events" && <Card label="Events"><EventList of={{ service: data.id }} /></Card>}
      {tab === "manifest" && (
        <Card title="Manifest" side={<Copy text={documentOf(trimmed(data.manifest ?? {}))} label="Copy the manifest" />}>
          <pre class="source" tabIndex={0} aria-label="Manifest">{`kind: service\n${documentOf(trimmed(data.manifest ?? {}))}`}</pre>
        </Card>
      )}
    </div>
  );
}

function scale(service: ServiceDetail, done: () => void): void {
  askFirst({
    title: `Scale ${service.name}`,
    text: <p>New replicas are jobs that wait for free devices like any other. Those that are too many finish their requests and end.</p>,
    field: { label: "Replicas", value: String(service.replicas), kind: "number" },
    act: "Scale",
    run: async (value) => {
      const params = { path: { ref: service.id }, query: { tenant: service.tenant } };
      await ask(api.POST("/v1/services/{ref}/scale", { params, body: { replicas: Number(value) } }));
      say(`${service.name} gets ${plural(Number(value), "replica")}`);
      announce("services", "jobs");
      done();
    },
  });
}

function stop(service: ServiceDetail): void {
  askFirst({
    title: `Stop ${service.name}?`,
    text: <p>Its {plural(service.replicas, "replica")} {service.replicas === 1 ? "is" : "are"} asked to end, and requests to it fail from then on. To have it again, it is deployed again.</p>,
    act: "Stop it",
    destructive: true,
    run: async () => {
      await ask(api.DELETE("/v1/services/{ref}", { params: { path: { ref: service.id }, query: { tenant: service.tenant } } }));
      say(`${service.name} stops`);
      announce("services", "jobs");
      go(href("services"));
    },
  });
}

function Overview({ service }: { service: ServiceDetail }) {
  const traffic = service.traffic;
  const history = useLoad(
    `service history ${service.id}`,
    (signal) => ask(api.GET("/v1/services/{ref}/history", { params: { path: { ref: service.id } }, signal })),
    [], 10_000,
  );
  const samples = useMemo(() => {
    const known = (history.data?.samples ?? []).map((one): Sample => ({ at: one.at, p50_s: one.p50_s ?? null, p99_s: one.p99_s ?? null, rate: one.rate_per_s ?? 0 }));
    const seen = traffic ? { at: Date.now() / 1000, p50_s: traffic.p50_s ?? null, p99_s: traffic.p99_s ?? null, rate: traffic.rate_per_s ?? 0 } : null;
    return withNewest(known, seen);
  }, [history.data, service]);
  const objective = objectiveOf(service);
  const goal = service.slo_p99_s;
  const latency = [
    { name: "P99", points: samples.map((one): [number, number | null] => [one.at, one.p99_s]) },
    { name: "P50", points: samples.map((one): [number, number | null] => [one.at, one.p50_s]) },
    ...(goal != null ? [{ name: "objective", points: samples.map((one): [number, number | null] => [one.at, goal]) }] : []),
  ];
  const rate = [{ name: "requests a second", points: samples.map((one): [number, number | null] => [one.at, one.rate]) }];
  const within = goal != null && history.data ? kept(samples, goal) : null;
  return (
    <div class="stack">
      {service.state !== "READY" && service.state !== "STOPPED" && <NotReady service={service} />}
      <dl class="figures">
        <div class={`figure figure-${objective?.mood || "plain"}`}>
          <dt>P99 of the last minute</dt>
          <dd>{traffic?.p99_s == null ? "–" : duration(traffic.p99_s)} <small class="muted">{objective ? `objective ${objective.text}` : "no objective"}</small></dd>
        </div>
        <div class="figure"><dt>P50</dt><dd>{traffic?.p50_s == null ? "–" : duration(traffic.p50_s)}</dd></div>
        <div class="figure"><dt>Requests a second</dt><dd>{number(traffic?.rate_per_s ?? 0)} <small class="muted">{traffic?.goodput_per_s == null ? "" : `${number(traffic.goodput_per_s)} within the objective, `}{plural(traffic?.requests ?? 0, "request")} in all</small></dd></div>
        <div class="figure"><dt>Refused</dt><dd>{number(traffic?.rejected ?? 0)} <small class="muted">{causesOf(traffic?.causes) || (service.rate_limit ? `at most ${number(service.rate_limit)} compute-seconds a second` : "no limit of the rate")}</small></dd></div>
        <div class={`figure ${traffic?.failed ? "figure-bad" : ""}`}><dt>Failed</dt><dd>{number(traffic?.failed ?? 0)}</dd></div>
      </dl>
      <Card title={goal != null ? "Latency against the objective" : "Latency"} side={<span>{within !== null ? `${share(within)} of the time within the objective` : "a day at most"}</span>}>
        {samples.some((one) => one.p99_s !== null) ? <LazyPlot title="Latency" lines={latency} write={duration} /> : <p class="muted">No requests in the last day.</p>}
      </Card>
      {samples.some((one) => one.rate > 0) && (
        <Card title="Requests a second"><LazyPlot title="Requests a second" lines={rate} write={number} height={120} /></Card>
      )}
      <div class="cols">
        <Replicas service={service} />
        <Models service={service} />
      </div>
      {service.endpoints && (
        <Card title="Endpoints">
          <dl class="facts">
            <dt>HTTP</dt>
            <dd class="row-gap tight"><code>{service.endpoints.http}</code><Copy text={service.endpoints.http} label="Copy the address" /></dd>
            <dt>gRPC</dt>
            <dd class="row-gap tight"><code>{service.endpoints.grpc}</code><Copy text={service.endpoints.grpc} label="Copy the gRPC address" /></dd>
          </dl>
        </Card>
      )}
    </div>
  );
}

function NotReady({ service }: { service: ServiceDetail }) {
  const { data } = useLoad(`explain ${service.id}`, (signal) => ask(api.GET("/v1/services/{ref}/explain", { params: { path: { ref: service.id } }, signal })), ["services"], 5000);
  if (!data) return null;
  return (
    <Card title="Why is it not ready?">
      <p class="lead">{data.summary}</p>
      <ol class="causes">
        {data.causes?.map((one) => (
          <li class="cause">
            <h3><Name>{one.subject}</Name></h3>
            <p>{one.reason.text}</p>
            {one.change && <p><span class="muted">What changes it:</span> {one.change}</p>}
          </li>
        ))}
      </ol>
    </Card>
  );
}

function Replicas({ service }: { service: ServiceDetail }) {
  const members = service.members ?? [];
  return (
    <Card title="Replicas">
      {members.length === 0 ? <p class="muted">None.</p> : (
        <div class="table-scroll">
          <table class="grid">
            <thead><tr><th scope="col">Replica</th><th scope="col">State</th><th scope="col">Holds</th><th scope="col">Note</th></tr></thead>
            <tbody>
              {members.map((one) => (
                <tr>
                  <th scope="row"><a href={href("jobs", one.job_id)}>{one.index}</a></th>
                  <td><State state={one.ready ? "READY" : one.state} />{one.leaving && <span class="chip">leaving</span>}</td>
                  <td class="nowrap">{one.resources ? resources(one.resources) : ""}</td>
                  <td class="wide">{one.text}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Card>
  );
}

function Models({ service }: { service: ServiceDetail }) {
  const models = service.models ?? [];
  const splits = splitsOf(service.manifest);
  return (
    <Card title="Models and versions">
      {models.length === 0 ? <p class="muted">The gateway has not said yet.</p> : (
        <div class="table-scroll">
          <table class="grid">
            <thead><tr><th scope="col">Model</th><th scope="col">Version</th><th scope="col">Runtime</th><th scope="col">State</th><th scope="col" class="right">Traffic</th></tr></thead>
            <tbody>
              {models.map((one) => {
                const part = splits.find((split) => split.model === one.name)?.parts.find((version) => version.version === one.version);
                return (
                  <tr>
                    <th scope="row"><Name>{one.name}</Name></th>
                    <td>{one.version}</td>
                    <td>{one.runtime}</td>
                    <td title={one.reason}>{one.state?.toLowerCase()}{one.reason && <span class="muted"> {one.reason}</span>}</td>
                    <td class="right">{part ? share(part.share) : <span class="none">–</span>}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
    </Card>
  );
}
