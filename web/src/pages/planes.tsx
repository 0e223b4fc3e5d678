export function Planes({ path }: { path: readonly string[] }) {
  return <div class="page"><h1>Planes {path.join("/")}</h1></div>;
}
