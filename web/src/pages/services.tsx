/** Services: are they ready, do they keep their objective, and what can be changed. */
import { api, ask } from "../api/client";
import type { Service } from "../api/types";
import { duration, number, plural } from "../lib/format";
import { objectiveOf } from "../lib/services";
import { href } from "../lib/router";
import { isAdmin, mayChange } from "../lib/session";
import { useLoad } from "../live/load";
import { Ago, Card, Empty, Header, Name, Pending, State } from "../ui/parts";
import { ServicePage } from "./service";

export function Services({ path }: { path: readonly string[] }) {
  return path[0] ? <ServicePage path={path} /> : <List />;
}

function List() {
  const { data, error, reload } = useLoad("services", (signal) => ask(api.GET("/v1/services", { params: { query: { limit: 500 } }, signal })), ["services"], 5000);
  return (
    <div class="page">
      <Header title="Services">
        {mayChange() && (
          <a class="button primary" href={`${href("submit")}?kind=service`}>
            Deploy a service
          </a>
        )}
      </Header>
      {!data ? (
        <Pending error={error} what="services" retry={reload} />
      ) : data.services.length === 0 ? (
        <Card>
          <Empty title="No services run">
            <p>A service keeps models ready to answer, within an objective such as a P99 of 50 ms.</p>
            <p>From a terminal: <code>shoal deploy service.yaml</code></p>
          </Empty>
        </Card>
      ) : (
        <Card label="Services">
          <div class="table-scroll" tabIndex={0} role="group" aria-label="Services">
            <table class="grid">
              <thead>
                <tr>
                  <th scope="col">Name</th>
                  <th scope="col">State</th>
                  {isAdmin() && <th scope="col">Tenant</th>}
                  <th scope="col">Replicas</th>
                  <th scope="col" class="right">Requests</th>
                  <th scope="col" class="right">P50</th>
                  <th scope="col" class="right">P99</th>
                  <th scope="col">Objective</th>
                  <th scope="col" class="right">Refused</th>
                  <th scope="col">Deployed</th>
                </tr>
              </thead>
              <tbody>
                {data.services.map((one) => <Row service={one} />)}
              </tbody>
            </table>
          </div>
        </Card>
      )}
    </div>
  );
}

function Row({ service }: { service: Service }) {
  const traffic = service.traffic;
  const objective = objectiveOf(service);
  return (
    <tr>
      <th scope="row">
        <a href={href("services", service.id)}><Name>{service.name}</Name></a>
      </th>
      <td><State state={service.state} note={service.reason?.text} /></td>
      {isAdmin() && <td><Name>{service.tenant}</Name></td>}
      <td class="nowrap">{service.ready} of {plural(service.replicas, "replica")} ready</td>
      <td class="right nowrap">{traffic ? `${number(traffic.rate_per_s ?? 0)} /s` : <span class="none">–</span>}</td>
      <td class="right nowrap">{traffic?.p50_s == null ? <span class="none">–</span> : duration(traffic.p50_s)}</td>
      <td class="right nowrap">{traffic?.p99_s == null ? <span class="none">–</span> : duration(traffic.p99_s)}</td>
      <td class="nowrap">{objective ? <span class={`chip ${objective.mood}`}>{objective.text}</span> : <span class="none">none</span>}</td>
      <td class="right">{traffic ? number(traffic.rejected ?? 0) : <span class="none">–</span>}</td>
      <td class="nowrap"><Ago at={service.created_at} /></td>
    </tr>
  );
}
