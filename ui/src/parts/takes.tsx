// The input of a kind as a table of fields, types and limits, made from its JSON schema.

import { Badge } from "./basics";
import { Table } from "./table";

type Schema = Record<string, unknown>;

interface Row {
  path: string;
  type: string;
  isRequired: boolean;
  limits: string[];
  about: string;
}

const DEPTH_MAX = 4;

/** Each rule of a schema as text. */
const LIMITS: Record<string, (value: unknown) => string> = {
  const: (value) => `must be ${literal(value)}`,
  enum: (value) => `one of ${(value as unknown[]).map(literal).join(", ")}`,
  default: (value) => `default ${literal(value)}`,
  minimum: (value) => `at least ${value}`,
  exclusiveMinimum: (value) => `more than ${value}`,
  maximum: (value) => `at most ${value}`,
  exclusiveMaximum: (value) => `less than ${value}`,
  multipleOf: (value) => `a multiple of ${value}`,
  minLength: (value) => `at least ${value} characters`,
  maxLength: (value) => `at most ${value} characters`,
  minItems: (value) => `at least ${value} items`,
  maxItems: (value) => `at most ${value} items`,
  minProperties: (value) => `at least ${value} members`,
  maxProperties: (value) => `at most ${value} members`,
  pattern: (value) => `matches ${value}`,
  format: (value) => `${value}`,
};

function literal(value: unknown): string {
  return JSON.stringify(value) ?? "nothing";
}

/** A schema with its reference resolved; members beside the `$ref` take precedence. */
function resolved(schema: Schema, root: Schema, depth = 0): Schema {
  const { $ref: to, ...beside } = schema;
  if (typeof to !== "string" || !to.startsWith("#/") || depth > DEPTH_MAX) return schema;
  let found: unknown = root;
  for (const name of to.slice(2).split("/")) found = (found as Schema | undefined)?.[name];
  return { ...resolved((found as Schema | undefined) ?? {}, root, depth + 1), ...beside };
}

function variants(schema: Schema): Schema[] {
  return ((schema["anyOf"] ?? schema["oneOf"]) as Schema[] | undefined) ?? [];
}

function typeOf(given: Schema, root: Schema): string {
  const schema = resolved(given, root);
  const some = variants(schema);
  if (some.length) return [...new Set(some.map((each) => typeOf(each, root)))].join(" or ");
  const type = schema["type"];
  if (type === "array") {
    const items = schema["items"] as Schema | undefined;
    return items && Object.keys(items).length ? `list of ${typeOf(items, root)}` : "list";
  }
  if (Array.isArray(type)) return type.join(" or ");
  if (typeof type === "string") return type;
  return "const" in schema || "enum" in schema ? "value" : schema["properties"] ? "object" : "anything";
}

function limitsOf(given: Schema, root: Schema): string[] {
  const schema = resolved(given, root);
  const own = Object.entries(LIMITS).flatMap(([name, describe]) =>
    schema[name] === undefined ? [] : [describe(schema[name])],
  );
  return [...own, ...variants(schema).flatMap((each) => limitsOf(each, root))];
}

function fieldsOf(given: Schema, root: Schema, before = "", depth = 0): Row[] {
  const schema = resolved(given, root);
  const required = new Set((schema["required"] as string[] | undefined) ?? []);
  const properties = (schema["properties"] as Record<string, Schema> | undefined) ?? {};
  return Object.entries(properties).flatMap(([name, one]) => {
    const path = before + name;
    const field = resolved(one, root);
    const row = {
      path,
      type: typeOf(one, root),
      isRequired: required.has(name),
      limits: limitsOf(one, root),
      about: String(field["description"] ?? ""),
    };
    const inside = depth < DEPTH_MAX ? insideOf(field, root, path, depth) : [];
    return [row, ...inside];
  });
}

/** The nested fields of a field: of an object, of the items of a list, or of each alternative. */
function insideOf(field: Schema, root: Schema, path: string, depth: number): Row[] {
  const items = field["items"] as Schema | undefined;
  if (items) return fieldsOf(items, root, `${path}[].`, depth + 1);
  const some = variants(field);
  if (!some.length) return fieldsOf(field, root, `${path}.`, depth + 1);
  const found = new Map<string, Row>();
  for (const row of some.flatMap((each) => fieldsOf(each, root, `${path}.`, depth + 1)))
    if (!found.has(row.path)) found.set(row.path, row);
  return [...found.values()];
}

export function SchemaTable({ schema }: { schema: Schema }) {
  const rows = fieldsOf(schema, schema);
  const isOpen = resolved(schema, schema)["additionalProperties"] !== false;
  return (
    <>
      <Table
        label="Input fields"
        rows={rows}
        keyOf={(row) => row.path}
        empty={<p class="soft">{isOpen ? "Any object." : "No input."}</p>}
        columns={[
          {
            name: "field",
            head: "Field",
            cell: (row) => (
              <>
                <code>{row.path}</code> {row.isRequired && <Badge tone="main">required</Badge>}
              </>
            ),
          },
          { name: "type", head: "Type", cell: (row) => row.type },
          { name: "limits", head: "Limits", cell: (row) => row.limits.join("; ") || <span class="soft">–</span> },
          { name: "about", head: "Description", cell: (row) => row.about || <span class="soft">–</span> },
        ]}
      />
      {rows.length > 0 && isOpen && <p class="soft">Additional fields are allowed.</p>}
    </>
  );
}
