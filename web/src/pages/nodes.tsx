/** Machines: what they have, who is on it, and taking them out of use. */
import { api, ask } from "../api/client";
import type { Device, Node } from "../api/types";
import { bytes, cores, number, plural } from "../lib/format";
import { countDevices, isFree } from "../lib/nodes";
import { href } from "../lib/router";
import { isAdmin } from "../lib/session";
import { useLoad } from "../live/load";
import { announce } from "../live/news";
import { askFirst } from "../ui/dialog";
import { Card, Empty, Header, Meter, Name, Pending } from "../ui/parts";
import { say } from "../ui/toast";

export function Nodes(_: { path: readonly string[] }) {
  const { data, error, reload } = useLoad("nodes", (signal) => ask(api.GET("/v1/nodes", { signal })), ["nodes"]);
  const names = useJobNames(data?.nodes ?? []);
  if (!data)
    return (
      <div class="page">
        <Header title="Nodes" />
        <Pending error={error} what="nodes" retry={reload} />
      </div>
    );
  const counts = countDevices(data.nodes);
  return (
    <div class="page">
      <Header title="Nodes" sub={`${plural(data.nodes.length, "node")}${counts.length ? `: ${counts.map((one) => `${one.free} of ${one.all} ${one.type} free`).join(", ")}` : ""}`} />
      {data.nodes.length === 0 && <Card><Empty title="No nodes">The engine offers no machine at present.</Empty></Card>}
      <div class="cards">
        {data.nodes.map((node) => <NodeCard node={node} names={names} done={reload} />)}
      </div>
    </div>
  );
}

/** The names of the running jobs, which the nodes know by their ids. */
function useJobNames(nodes: readonly Node[]): ReadonlyMap<string, string> {
  const held = nodes.some((node) => (node.devices ?? []).some((device) => device.job_id));
  const { data } = useLoad(
    `running ${held}`,
    async (signal) => (held ? (await ask(api.GET("/v1/jobs", { params: { query: { state: ["RUNNING", "STARTING", "DOWNLOADING", "CHECKPOINTING", "STORING"], limit: 1000, owned: true } as never }, signal }))).jobs : []),
    ["nodes"],
  );
  return new Map((data ?? []).map((job) => [job.id, job.name]));
}

function NodeCard({ node, names, done }: { node: Node; names: ReadonlyMap<string, string>; done: () => void }) {
  const devices = node.devices ?? [];
  const busy = devices.filter((one) => !isFree(one)).length;
  const cpu = node.cpu_milli - node.free_cpu_milli;
  const memory = node.memory_bytes - node.free_memory_bytes;
  return (
    <Card
      title={<Name>{node.name}</Name>}
      side={
        <>
          {!node.schedulable && <span class="chip warning">takes no new work</span>}
          {isAdmin() && (
            <button type="button" class="button small" onClick={() => (node.schedulable ? drain(node, done) : undrain(node, done))}>
              {node.schedulable ? "Drain" : "Use again"}
            </button>
          )}
        </>
      }
    >
      {node.closed && <p class="muted">{node.closed}</p>}
      {devices.length > 0 && (
        <ul class="devices" aria-label={`Devices of ${node.name}`}>
          {devices.map((device) => <DeviceBox device={device} names={names} />)}
        </ul>
      )}
      <div class="bars">
        {devices.length > 0 && <Bar name="Devices" used={busy} whole={devices.length} text={`${busy} of ${devices.length} taken`} />}
        <Bar name="CPU" used={cpu} whole={node.cpu_milli} text={`${number(cpu / 1000)} of ${cores(node.cpu_milli)}`} />
        <Bar name="Memory" used={memory} whole={node.memory_bytes} text={`${bytes(memory)} of ${bytes(node.memory_bytes)}`} />
      </div>
      {(Object.keys(node.labels ?? {}).length > 0 || (node.taints?.length ?? 0) > 0) && (
        <div class="labels">
          {Object.entries(node.labels ?? {}).map(([name, value]) => <span class="chip">{name}={value}</span>)}
          {node.taints?.map((one) => <span class="chip warning">taint {one}</span>)}
        </div>
      )}
      {(node.machines?.length ?? 0) > 0 && <p class="muted">{plural(node.machines?.length ?? 0, "machine")} of the pool {node.machines?.length === 1 ? "runs" : "run"} your jobs: {node.machines?.map((one) => one.name).join(", ")}</p>}
    </Card>
  );
}

function Bar({ name, used, whole, text }: { name: string; used: number; whole: number; text: string }) {
  return (
    <div class="bar">
      <span>{name}</span>
      <Meter used={used} whole={whole} label={`${name}: ${text}`} />
      <span>{text}</span>
    </div>
  );
}

function DeviceBox({ device, names }: { device: Device; names: ReadonlyMap<string, string> }) {
  const shared = device.best_effort_jobs ?? [];
  const kind = device.job_id || device.free === false ? "taken" : shared.length > 0 ? "shared" : "";
  return (
    <li class={`device ${kind}`}>
      <span class="muted">{device.id} · {device.type}{device.memory_bytes ? ` · ${bytes(device.memory_bytes)}` : ""}</span>
      {device.job_id ? (
        <strong><a href={href("jobs", device.job_id)}><Name>{names.get(device.job_id) ?? device.job_id}</Name></a></strong>
      ) : shared.length === 0 ? (
        <strong class={device.free === false ? "" : "muted"}>{device.free === false ? "another tenant" : "free"}</strong>
      ) : null}
      {shared.map((id) => <span>best-effort: <a href={href("jobs", id)}><Name>{names.get(id) ?? id}</Name></a></span>)}
      {device.tenant && <span class="muted"><Name>{device.tenant}</Name></span>}
    </li>
  );
}

function drain(node: Node, done: () => void): void {
  const running = new Set((node.devices ?? []).flatMap((one) => (one.job_id ? [one.job_id] : []))).size;
  askFirst({
    title: `Drain ${node.name}?`,
    text: <p>It takes no new work. {running > 0 ? `${plural(running, "job")} with devices there ${running === 1 ? "runs" : "run"} on to the end.` : "No job holds a device there now."}</p>,
    field: { label: "Why (shown to those who wait)", value: "" },
    act: "Drain it",
    run: async (because) => {
      await ask(api.POST("/v1/nodes/{name}/drain", { params: { path: { name: node.name } }, body: { because } }));
      say(`${node.name} takes no new work`);
      announce("nodes");
      done();
    },
  });
}

function undrain(node: Node, done: () => void): void {
  askFirst({
    title: `Use ${node.name} again?`,
    text: <p>Waiting jobs may be placed on it at once.</p>,
    act: "Use it",
    run: async () => {
      await ask(api.POST("/v1/nodes/{name}/undrain", { params: { path: { name: node.name } } }));
      say(`${node.name} takes work again`);
      announce("nodes");
      done();
    },
  });
}
