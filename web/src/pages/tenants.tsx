/** Tenants: what each is due and gets, its limits and what it holds of them. */
import { api, ask } from "../api/client";
import type { Tenant } from "../api/types";
import { bytes, cores, number, plural, share } from "../lib/format";
import { href } from "../lib/router";
import { isAdmin } from "../lib/session";
import { sharesOf, heldOf, type Share } from "../lib/shares";
import { useLoad } from "../live/load";
import { Card, Header, Meter, Name, Pending } from "../ui/parts";
import { askNewTenant, askQuota } from "./tenants/change";
import { SharesOverTime } from "./tenants/shares";
import { Tokens } from "./tenants/tokens";

export function Tenants({ path }: { path: readonly string[] }) {
  const { data, error, reload } = useLoad("tenants", (signal) => ask(api.GET("/v1/tenants", { signal })), ["tenants"]);
  const tenants = data?.tenants ?? [];
  const one = path[0] ? tenants.find((tenant) => tenant.name === path[0]) : tenants.length === 1 && !isAdmin() ? tenants[0] : undefined;
  const shares = sharesOf(tenants);
  return (
    <div class="page">
      <Header title={one ? <Name>{one.name}</Name> : "Tenants"} sub={one ? `weight ${number(one.weight)}, up to ${one.max_priority_class}` : data && plural(tenants.length, "tenant")}>
        {path[0] && isAdmin() && <a class="button" href={href("tenants")}>All tenants</a>}
        {isAdmin() && (one ? <button type="button" class="button" onClick={() => askQuota(one, reload)}>Change limits</button> : <button type="button" class="button" onClick={() => askNewTenant(reload)}>New tenant</button>)}
      </Header>
      {!data ? (
        <Pending error={error} what="tenants" retry={reload} />
      ) : one ? (
        <OneTenant tenant={one} share={shares.find((each) => each.name === one.name)} alone={!isAdmin()} />
      ) : (
        <>
          <Fairness tenants={tenants} shares={shares} />
          <SharesOverTime />
        </>
      )}
    </div>
  );
}

function Fairness({ tenants, shares }: { tenants: readonly Tenant[]; shares: readonly Share[] }) {
  return (
    <Card
      title="Share due and received"
      side={
        <>
          <span class="key"><i aria-hidden="true" /> holds now</span>
          <span class="key"><i class="due" aria-hidden="true" /> is due by weight</span>
        </>
      }
    >
      <div class="table-scroll" tabIndex={0} role="group" aria-label="Tenants">
        <table class="grid">
          <thead>
            <tr>
              <th scope="col">Tenant</th>
              <th scope="col" class="right">Weight</th>
              <th scope="col">Share of accelerators in use</th>
              <th scope="col" class="right">Holds</th>
              <th scope="col" class="right">Quota</th>
              <th scope="col" class="right">Running</th>
              <th scope="col" class="right">Waiting</th>
              <th scope="col" class="right">Disk</th>
            </tr>
          </thead>
          <tbody>
            {tenants.map((tenant, place) => {
              const one = shares[place];
              const quota = tenant.quota.accelerators;
              return (
                <tr>
                  <th scope="row"><a href={href("tenants", tenant.name)}><Name>{tenant.name}</Name></a></th>
                  <td class="right">{number(tenant.weight)}</td>
                  <td>{one && <ShareBar share={one} />}</td>
                  <td class="right">{number(heldOf(tenant))}</td>
                  <td class="right">{quota == null ? <span class="none">no limit</span> : number(quota)}</td>
                  <td class="right">{number(tenant.running_jobs ?? 0)}</td>
                  <td class="right"><a href={`${href("jobs")}?state=waiting&tenant=${encodeURIComponent(tenant.name)}`}>{number(tenant.jobs?.["QUEUED"] ?? 0)}</a></td>
                  <td class="right nowrap">{bytes(tenant.disk_bytes ?? 0)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function ShareBar({ share: one }: { share: Share }) {
  const text = `holds ${share(one.got)}, is due ${share(one.due)}`;
  return (
    <div class="share-line">
      <div class="share-bar" role="img" aria-label={text}>
        <span class="got" style={{ width: `${one.got * 100}%` }} />
        {one.due > 0 && <span class="due" style={{ left: `calc(${Math.min(1, one.due) * 100}% - 1px)` }} />}
      </div>
      <span class="muted nowrap">{share(one.got)} of {share(one.due)}</span>
    </div>
  );
}

const LIMITS: readonly (readonly [string, keyof Tenant["quota"], (tenant: Tenant) => number, (value: number) => string])[] = [
  ["Accelerators", "accelerators", heldOf, number],
  ["CPU", "cpu_milli", (one) => one.used?.cpu_milli ?? 0, cores],
  ["Memory", "memory_bytes", (one) => one.used?.memory_bytes ?? 0, bytes],
  ["Running jobs", "running_jobs", (one) => one.running_jobs ?? 0, number],
  ["Waiting jobs", "queued_jobs", (one) => one.jobs?.["QUEUED"] ?? 0, number],
  ["Disk", "disk_bytes", (one) => one.disk_bytes ?? 0, bytes],
];

function OneTenant({ tenant, share: one, alone }: { tenant: Tenant; share: Share | undefined; alone: boolean }) {
  return (
    <div class="stack">
      {one && !alone && <Card title="Share due and received"><ShareBar share={one} /></Card>}
      <SharesOverTime tenant={tenant.name} />
      <Card title="Limits and what is used of them">
        <div class="bars">
          {LIMITS.map(([name, field, used, text]) => {
            const limit = tenant.quota[field];
            const value = used(tenant);
            return (
              <div class="bar">
                <span>{name}</span>
                {typeof limit === "number" ? <Meter used={value} whole={limit} label={`${name} used`} tone={value >= limit ? "warning" : "plain"} /> : <span />}
                <span>{typeof limit === "number" ? `${text(value)} of ${text(limit)}` : `${text(value)}, no limit`}</span>
              </div>
            );
          })}
          {Object.entries((tenant.quota.by_type ?? {}) as Record<string, number>).map(([type, limit]) => (
            <div class="bar">
              <span>{type}</span>
              <Meter used={tenant.used?.accelerators?.[type] ?? 0} whole={limit} label={`${type} used`} />
              <span>{tenant.used?.accelerators?.[type] ?? 0} of {number(limit)}</span>
            </div>
          ))}
        </div>
      </Card>
      <Card title="Jobs">
        <p class="row-gap">
          {Object.entries(tenant.jobs ?? {}).map(([state, count]) => <span class="chip">{number(count)} {state.toLowerCase()}</span>)}
          <a href={`${href("jobs")}?tenant=${encodeURIComponent(tenant.name)}`}>All jobs of {tenant.name}</a>
        </p>
      </Card>
      {isAdmin() && <Tokens tenant={tenant.name} />}
    </div>
  );
}
