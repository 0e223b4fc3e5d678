/** Plain values as YAML, for manifests that are shown and edited. Texts that could be read as anything else are quoted. */

export type Plain = null | boolean | number | string | readonly Plain[] | { readonly [name: string]: Plain };

const SAFE = /^(?:(?:-{1,2}[A-Za-z]|[A-Za-z_./~])[\w ./~@%+=:-]*|\d+(?:\.\d+)?(?:[KMGT]i?B|ms|s|m|h|d))$/;
const WORDS = /^(?:true|false|yes|no|on|off|null|nan|inf|y|n|~)$/i;

export function toYaml(value: Plain, indent = ""): string {
  if (isList(value)) {
    if (value.length === 0) return "[]\n";
    if (value.every((one) => !isNested(one)) && JSON.stringify(value).length < 90 && !value.some(isBlock))
      return `[${value.map((one) => scalar(one as string, true)).join(", ")}]\n`;
    return `\n${value.map((one) => `${indent}- ${nested(one, `${indent}  `)}`).join("")}`;
  }
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value);
    if (entries.length === 0) return "{}\n";
    return `\n${fields(entries, indent)}`;
  }
  return isBlock(value) ? block(value as string, indent) : `${scalar(value, false)}\n`;
}

export function documentOf(value: { readonly [name: string]: Plain }): string {
  return fields(Object.entries(value), "");
}

function fields(entries: readonly (readonly [string, Plain])[], indent: string): string {
  return entries
    .map(([name, one]) => {
      const text = toYaml(one, `${indent}  `);
      return `${indent}${scalar(name, false)}:${text.startsWith("\n") ? text : ` ${text}`}`;
    })
    .join("");
}

/** A list's member: a mapping begins on the line of its dash. */
function nested(value: Plain, indent: string): string {
  const text = toYaml(value, indent);
  return text.startsWith("\n") ? text.slice(1 + indent.length) : text;
}

const isList = (value: Plain): value is readonly Plain[] => Array.isArray(value);
const isNested = (value: Plain): boolean => value !== null && typeof value === "object";
const isBlock = (value: Plain): boolean =>
  typeof value === "string" && value.includes("\n") && /^\n*\S/.test(value) && !/[^\n\t\u0020-\u007e\u00a0-\ud7ff]/.test(value);

function block(text: string, indent: string): string {
  const lines = text.replace(/\n+$/, "").split("\n");
  const keep = text.endsWith("\n\n") ? "+" : text.endsWith("\n") ? "" : "-";
  const extra = keep === "+" ? "\n".repeat(text.length - text.replace(/\n+$/, "").length - 1) : "";
  return `|${keep}\n${lines.map((line) => (line ? `${indent || "  "}${line}\n` : "\n")).join("")}${extra}`;
}

function scalar(value: Plain, inList: boolean): string {
  if (typeof value !== "string") return JSON.stringify(value);
  const plain = SAFE.test(value) && !WORDS.test(value) && !/: |:$| #|\s$/.test(value) && !(inList && /[,[\]{}]/.test(value));
  if (plain) return value;
  return /^[\u0020-\u007e]*\\[\u0020-\u007e]*$/.test(value) ? `'${value.replaceAll("'", "''")}'` : JSON.stringify(value);
}
