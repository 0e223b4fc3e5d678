export function Services({ path }: { path: readonly string[] }) {
  return <div class="page"><h1>Services {path.join("/")}</h1></div>;
}
