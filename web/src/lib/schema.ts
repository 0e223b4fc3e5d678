/** Hints for a manifest from its JSON Schema: which fields may stand where the reader writes, and what they mean. */

export interface Schema {
  readonly $ref?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly allOf?: readonly Schema[];
  readonly $defs?: Readonly<Record<string, Schema>>;
}

export interface Hint {
  readonly name: string;
  readonly about: string;
  /** The words that it takes, if only some may stand. */
  readonly values: readonly string[];
  readonly nested: boolean;
}

/** The fields above a line of YAML, outermost first, by its indentation: ["resources", "accelerators"]. */
export function pathAt(lines: readonly string[], line: number): string[] {
  const present = lines[line] ?? "";
  let indent = indentOf(present);
  if (present.trim() === "" && line > 0) {
    const above = lines[line - 1] ?? "";
    indent = present.length > 0 ? present.length : /:\s*$/.test(above) ? indentOf(above) + 2 : indentOf(above);
  }
  const path: string[] = [];
  for (let at = line - 1; at >= 0 && indent > 0; at--) {
    const found = /^( *)(?:- )?([\w-]+)\s*:/.exec(lines[at] ?? "");
    const own = found?.[1]?.length ?? 0;
    if (!found?.[2] || own >= indent) continue;
    path.unshift(found[2]);
    indent = own;
  }
  return path;
}

const indentOf = (text: string): number => text.length - text.trimStart().length;

/** The fields that may stand in the mapping at a path; none if the schema knows no such mapping. */
export function hintsAt(root: Schema, path: readonly string[]): Hint[] {
  let options = unfold(root, root);
  for (const name of path) options = options.flatMap((one) => (one.properties?.[name] ? unfold(one.properties[name], root) : []));
  const found = new Map<string, Hint>();
  for (const option of options)
    for (const [name, field] of Object.entries(option.properties ?? {})) if (!found.has(name)) found.set(name, hintOf(name, field, root));
  return [...found.values()];
}

function hintOf(name: string, field: Schema, root: Schema): Hint {
  const options = unfold(field, root);
  const values = options.flatMap((one) => one.enum ?? []).map(String);
  const about = field.description ?? options.find((one) => one.description)?.description ?? "";
  return { name, about, values, nested: options.some((one) => one.properties !== undefined) };
}

/** A schema with its references and alternatives resolved; of a list, what its members are. */
function unfold(schema: Schema, root: Schema, depth = 0): Schema[] {
  if (depth > 8) return [];
  const more = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? []), ...(schema.items ? [schema.items] : [])];
  const target = schema.$ref ? root.$defs?.[schema.$ref.split("/").pop() ?? ""] : undefined;
  return [schema, ...(target ? unfold(target, root, depth + 1) : []), ...more.flatMap((one) => unfold(one, root, depth + 1))];
}

/** The line, from 1, that a problem's place names: "manifest:4: priority". */
export function lineOf(where: string | null | undefined): number | null {
  const found = /^manifest:(\d+)/.exec(where ?? "");
  return found ? Number(found[1]) : null;
}

export const isService = (text: string): boolean => /^kind:\s*["']?service\b/m.test(text);
