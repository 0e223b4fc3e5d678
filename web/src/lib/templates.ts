/** Manifests to start from. */
export interface Template {
  readonly name: string;
  readonly text: string;
}

export const TEMPLATES: readonly Template[] = [
  {
    name: "A command",
    text: `name: train
command: [python3, train.py, --epochs, "10"]
resources:
  accelerators: 1
  memory: 4GiB
priority_class: best-effort
expected_runtime: 1h
`,
  },
  {
    name: "Guaranteed, several ranks",
    text: `name: train-gang
command: [python3, train.py]
ranks: 4
resources: # of each rank
  accelerators: 1
  cpus: 4
  memory: 16GiB
priority_class: guaranteed
restart:
  limits: {user: 1}
max_runtime: 12h
`,
  },
  {
    name: "An array",
    text: `name: sweep
array: 0-99%8 # a hundred tasks, eight at a time
command: [bash, -c, "python3 train.py --seed $SHOAL_ARRAY_INDEX"]
resources:
  accelerators: 1
  cpus: 2
  memory: 8GiB
`,
  },
  {
    name: "With metrics and outputs",
    text: `name: train
command: [python3, train.py]
resources:
  accelerators: 1
  memory: 16GiB
metrics:
  regex:
    loss: 'step (?P<step>\\d+) loss=(?P<value>[\\d.]+)'
outputs:
  - model
`,
  },
  {
    name: "A service",
    text: `kind: service
name: ocr
models:
  - {name: text, source: /models/text.onnx}
slo: {p99: 50ms}
replicas: 2
resources: {cpus: 2, memory: 2GiB}
priority_class: guaranteed
`,
  },
];
