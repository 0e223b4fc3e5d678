/** The whole page: who is signed in, the frame around every place, and which place is shown. */
import type { ComponentType } from "preact";
import { lazy, Suspense } from "preact/compat";
import { useEffect, useState } from "preact/hooks";
import { begin, session } from "./lib/session";
import { place } from "./lib/router";
import { asRefused } from "./live/load";
import { follow } from "./live/stream";
import type { Refused } from "./api/client";
import { Jobs } from "./pages/jobs";
import { SignIn } from "./pages/signin";
import { Questions } from "./ui/dialog";
import { Empty, Failure, Loading } from "./ui/parts";
import { Shell } from "./ui/shell";
import { Toasts } from "./ui/toast";

interface Shown {
  readonly path: readonly string[];
}

const part = (load: () => Promise<ComponentType<Shown>>): ComponentType<Shown> =>
  lazy(() => load().then((found) => ({ default: found })));

const PLACES: Record<string, ComponentType<Shown>> = {
  jobs: ({ path }) => (path[0] ? <JobPlace path={path} /> : <Jobs />),
  submit: part(() => import("./pages/submit").then((one) => one.Submit)),
  services: part(() => import("./pages/services").then((one) => one.Services)),
  nodes: part(() => import("./pages/nodes").then((one) => one.Nodes)),
  tenants: part(() => import("./pages/tenants").then((one) => one.Tenants)),
  planes: part(() => import("./pages/planes").then((one) => one.Planes)),
  events: part(() => import("./pages/events").then((one) => one.Events)),
  server: part(() => import("./pages/server").then((one) => one.Server)),
  parts: part(() => import("./pages/component").then((one) => one.ComponentPage)),
};
const JobPlace = part(() => import("./pages/job").then((one) => one.JobPage));

export function App() {
  const [error, setError] = useState<Refused | null>(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    setError(null);
    begin().catch((reason: unknown) => setError(asRefused(reason)));
  }, [turn]);
  const signedIn = session.value?.signed_in === true;
  useEffect(() => (signedIn ? follow() : undefined), [signedIn]);

  if (session.value === null)
    return (
      <main class="sign">{error ? <Failure error={error} retry={() => setTurn(turn + 1)} /> : <Loading what="Shoal" />}</main>
    );
  if (!signedIn) return <SignIn />;
  return (
    <>
      <Shell>
        <Place />
      </Shell>
      <Questions />
      <Toasts />
    </>
  );
}

function Place() {
  const { path } = place.value;
  const name = path[0] ?? "jobs";
  const Found = Object.hasOwn(PLACES, name) ? PLACES[name] : undefined;
  useEffect(() => {
    const title = [path[1], name.charAt(0).toUpperCase() + name.slice(1)].filter(Boolean).join(" · ");
    document.title = `${title} – Shoal`;
  }, [name, path[1]]);
  if (!Found)
    return (
      <div class="page">
        <h1 class="hidden-text">Not found</h1>
        <Empty title="There is no such page">
          <a href="/ui/jobs">All jobs</a>
        </Empty>
      </div>
    );
  return (
    <Suspense fallback={<div class="page"><Loading what="the page" /></div>}>
      <Found path={path.slice(1)} />
    </Suspense>
  );
}
