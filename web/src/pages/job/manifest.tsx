import type { JobDetail } from "../../api/types";
import { trimmed } from "../../lib/manifest";
import { documentOf } from "../../lib/yaml";
import { Card, Copy } from "../../ui/parts";

export function Manifest({ job }: { job: JobDetail }) {
  const text = documentOf(trimmed(job.manifest ?? {}));
  return (
    <Card title="Manifest" side={<Copy text={text} label="Copy the manifest" />}>
      <p class="muted">As the server keeps it, without the fields that have their defaults.</p>
      <pre class="source" tabIndex={0} aria-label="Manifest">{text}</pre>
    </Card>
  );
}
