export function Events({ path }: { path: readonly string[] }) {
  return <div class="page"><h1>Events {path.join("/")}</h1></div>;
}
