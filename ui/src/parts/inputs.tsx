// A form made from a JSON Schema. What cannot be shown as fields is edited as JSON, so that every input is possible.

import type { ComponentChildren } from "preact";
import { useId, useState } from "preact/hooks";
import { plain } from "../words";
import { Notes, notesOf } from "./forms";
import "./inputs.css";

export interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  definitions?: Record<string, Schema>;
  type?: string | string[];
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema | boolean;
  prefixItems?: Schema[];
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  default?: unknown;
  examples?: unknown[];
  title?: string;
  description?: string;
  format?: string;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
}

type Members = Record<string, unknown>;
type Widget = "object" | "choice" | "fixed" | "boolean" | "number" | "text" | "list" | "json";

const DEPTH_MAX = 6;
const STEPS_MAX = 20;
const LONG = 200;
const LONG_TEXT = /prompt|text|message|body|description|content|html|code|script|note|question|lyrics/i;
const FILES = /artifact|\bart_|file|image|picture|photo|video|audio|asset|mask/i;

// Reading a schema

/** A schema with its references resolved and `null` removed from its types. */
function resolved(given: Schema | boolean | undefined, root: Schema): { schema: Schema; isNullable: boolean } {
  let schema: Schema = given === undefined || typeof given === "boolean" ? {} : given;
  let isNullable = false;
  for (let step = 0; step < STEPS_MAX; step += 1) {
    const choices = schema.anyOf ?? schema.oneOf;
    if (schema.$ref) {
      const { $ref, ...beside } = schema;
      schema = { ...named($ref, root), ...beside };
    } else if (schema.allOf) {
      const { allOf, ...beside } = schema;
      schema = [...allOf.map((each) => resolved(each, root).schema), beside].reduce(joined, {});
    } else if (choices) {
      const { anyOf: _any, oneOf: _one, ...beside } = schema;
      const others = choices.filter((each) => each.type !== "null");
      isNullable ||= others.length < choices.length;
      const [only] = others;
      if (others.length === 1 && only) schema = { ...only, ...beside };
      else return { schema: united(others, beside), isNullable };
    } else break;
  }
  if (!Array.isArray(schema.type)) return { schema, isNullable };
  const { type: types, ...rest } = schema;
  const others = types.filter((type) => type !== "null");
  const [only] = others;
  return {
    schema: others.length === 1 && only ? { ...rest, type: only } : rest,
    isNullable: isNullable || others.length < types.length,
  };
}

function named(reference: string, root: Schema): Schema {
  const name = /^#\/(?:\$defs|definitions)\/(.+)$/.exec(reference)?.[1];
  return (name && (root.$defs ?? root.definitions)?.[decodeURIComponent(name)]) || {};
}

function joined(one: Schema, other: Schema): Schema {
  return {
    ...one,
    ...other,
    ...(one.properties || other.properties ? { properties: { ...one.properties, ...other.properties } } : {}),
    ...(one.required || other.required ? { required: [...(one.required ?? []), ...(other.required ?? [])] } : {}),
  };
}

/** Alternatives as one choice, if each of them lists its values; otherwise a schema that is edited as JSON. */
function united(choices: readonly Schema[], beside: Schema): Schema {
  const values = choices.flatMap((each) => each.enum ?? (each.const === undefined ? [undefined] : [each.const]));
  return values.includes(undefined) ? beside : { ...beside, enum: values };
}

function widgetOf(schema: Schema, depth: number): Widget {
  if (schema.const !== undefined) return "fixed";
  if (schema.enum) return "choice";
  if (schema.properties && depth < DEPTH_MAX) return "object";
  if (schema.type === "boolean") return "boolean";
  if (schema.type === "integer" || schema.type === "number") return "number";
  if (schema.type === "string") return "text";
  if (schema.type === "array" && schema.items && !schema.prefixItems && depth < DEPTH_MAX) return "list";
  return "json";
}

/** Whether a schema can be shown as fields at all. */
export function hasFields(root: Schema): boolean {
  return Object.keys(resolved(root, root).schema.properties ?? {}).length > 0;
}

/** The initial input: the defaults of the schema, and constants or examples of required fields. */
export function initialInput(given: Schema, root: Schema = given, depth = 0): Members {
  const { schema } = resolved(given, root);
  const members: Members = {};
  for (const [name, each] of Object.entries(schema.properties ?? {})) {
    const { schema: inner } = resolved(each, root);
    const isRequired = schema.required?.includes(name);
    const first = inner.default ?? (isRequired ? (inner.const ?? inner.examples?.[0]) : undefined);
    if (first !== undefined && !isEmpty(first)) members[name] = first;
    else if (isRequired && inner.properties && depth < DEPTH_MAX) members[name] = initialInput(inner, root, depth + 1);
  }
  return members;
}

function isEmpty(value: unknown): boolean {
  return value === null || value === "" || (typeof value === "object" && !Object.keys(value).length);
}

// The form

interface Form {
  root: Schema;
  /** Error messages by path, such as `input.steps`. */
  errors: Readonly<Record<string, string>>;
  /** Uploads a file and returns the id of its artifact; undefined if uploads are not possible. */
  upload?: ((file: File) => Promise<string>) | undefined;
}

interface FormProps extends Form {
  value: Members;
  /** Changes when the value was changed outside the form, so that the fields are filled again. */
  turn: number;
  onChange: (value: Members) => void;
}

export function SchemaForm({ value, turn, onChange, ...form }: FormProps) {
  const { schema } = resolved(form.root, form.root);
  return <Fields key={turn} form={form} schema={schema} path="input" depth={0} value={value} onChange={onChange} />;
}

interface ValueProps extends Form {
  label: string;
  /** The path of the value, with which its errors begin. */
  path: string;
  value: unknown;
  onChange: (value: unknown) => void;
}

/** Fields for a value of any type, such as the answer to a question. */
export function SchemaValue({ label, path, value, onChange, ...form }: ValueProps) {
  return (
    <Member
      form={form}
      given={form.root}
      label={label}
      path={path}
      depth={0}
      isRequired
      value={value}
      onChange={onChange}
    />
  );
}

/** The value with which such fields begin: what is not chosen yet is undefined. */
export function initialValue(root: Schema): unknown {
  const { schema } = resolved(root, root);
  if (schema.properties) return initialInput(schema, root);
  return schema.default ?? schema.const ?? { boolean: false, array: [] }[String(schema.type)];
}

interface FieldsProps {
  form: Form;
  schema: Schema;
  path: string;
  depth: number;
  value: Members;
  onChange: (value: Members) => void;
}

function Fields({ form, schema, path, depth, value, onChange }: FieldsProps) {
  return (
    <>
      {Object.entries(schema.properties ?? {}).map(([name, each]) => (
        <Member
          key={name}
          form={form}
          given={each}
          label={plain(name)}
          path={`${path}.${name}`}
          depth={depth + 1}
          isRequired={Boolean(schema.required?.includes(name))}
          value={value[name]}
          onChange={(next) => {
            const { [name]: _old, ...rest } = value;
            onChange(next === undefined ? rest : { ...value, [name]: next });
          }}
        />
      ))}
    </>
  );
}

interface MemberProps {
  form: Form;
  given: Schema | boolean | undefined;
  label: string;
  path: string;
  depth: number;
  isRequired: boolean;
  value: unknown;
  onChange: (value: unknown) => void;
}

interface Inner extends MemberProps {
  schema: Schema;
  isNullable: boolean;
  id: string;
  /** The attributes that every input of a member has. */
  common: Record<string, unknown>;
}

const WIDGETS: Record<Widget, (props: Inner) => ComponentChildren> = {
  object: (props) => <Group {...props} />,
  list: (props) => <List {...props} />,
  fixed: ({ common, schema }) => <input {...common} value={String(schema.const)} readOnly />,
  choice: (props) => <Choice {...props} />,
  boolean: ({ common, schema, value, onChange }) => (
    <input
      {...common}
      type="checkbox"
      defaultChecked={Boolean(value ?? schema.default)}
      onInput={(event) => onChange(event.currentTarget.checked)}
    />
  ),
  number: (props) => <Numeric {...props} />,
  text: (props) => <Text {...props} />,
  json: (props) => <Raw {...props} />,
};

function Member(props: MemberProps) {
  const { form, given, depth, label, isRequired, path } = props;
  const id = useId();
  const { schema, isNullable } = resolved(given, form.root);
  const widget = widgetOf(schema, depth);
  const error = form.errors[path];
  const hint = hintOf(schema);
  const describedBy = notesOf({ id, hint, error });
  const common = { id, name: path, "aria-describedby": describedBy, "aria-invalid": error ? true : undefined };
  const shown = WIDGETS[widget]({ ...props, schema, isNullable, id, common });
  const title = (
    <>
      {label}
      {isRequired && !path.endsWith("]") && <span class="inputs-required"> required</span>}
    </>
  );
  const notes = <Notes id={id} hint={hint} error={error} />;
  if (widget === "object" || widget === "list")
    return (
      <fieldset class="inputs-group" data-path={path}>
        <legend>{title}</legend>
        {notes}
        {shown}
      </fieldset>
    );
  return (
    <div class={`field ${widget === "boolean" ? "check" : ""}`} data-path={path}>
      <label for={id}>{title}</label>
      {shown}
      {notes}
    </div>
  );
}

/** The hint below a field: its description and its limits. */
function hintOf(schema: Schema): string {
  const low = schema.minimum ?? schema.exclusiveMinimum;
  const high = schema.maximum ?? schema.exclusiveMaximum;
  const parts = [schema.description ?? ""];
  if (low !== undefined && high !== undefined) parts.push(`From ${low} to ${high}.`);
  else if (low !== undefined) parts.push(`At least ${low}.`);
  else if (high !== undefined) parts.push(`At most ${high}.`);
  if (schema.minLength && schema.minLength > 1) parts.push(`At least ${schema.minLength} characters.`);
  if (schema.maxLength) parts.push(`At most ${schema.maxLength.toLocaleString("en")} characters.`);
  if (schema.minItems) parts.push(`At least ${schema.minItems}.`);
  if (schema.maxItems) parts.push(`At most ${schema.maxItems}.`);
  const preset = schema.default;
  if (preset !== undefined && !isEmpty(preset))
    parts.push(`Default: ${typeof preset === "string" ? preset : JSON.stringify(preset)}.`);
  return parts.filter(Boolean).join(" ");
}

/** The value of an empty field. */
function emptyValue({ isRequired, isNullable }: Inner, required: unknown): unknown {
  if (!isRequired) return undefined;
  return isNullable ? null : required;
}

function Text(props: Inner) {
  const { schema, common, value, onChange, form, path, label } = props;
  const [turn, setTurn] = useState(0);
  const change = (text: string) => onChange(text === "" ? emptyValue(props, "") : text);
  const shared = {
    ...common,
    defaultValue: value === undefined || value === null ? "" : String(value),
    placeholder: String(schema.examples?.[0] ?? ""),
    spellcheck: false,
    onInput: (event: { currentTarget: { value: string } }) => change(event.currentTarget.value),
  };
  const isLong = (schema.maxLength ?? 0) > LONG || (LONG_TEXT.test(label) && (schema.maxLength ?? LONG) >= LONG);
  const { upload } = form;
  return (
    <>
      {isLong && !schema.format ? (
        <textarea key={turn} {...shared} rows={3} class="inputs-text" />
      ) : (
        <input key={turn} {...shared} type="text" autocomplete="off" />
      )}
      {upload && (FILES.test(path) || FILES.test(schema.description ?? "")) && (
        <Upload
          path={path}
          upload={upload}
          onDone={(artifact) => {
            change(artifact);
            setTurn((before) => before + 1);
          }}
        />
      )}
    </>
  );
}

interface UploadProps {
  path: string;
  upload: (file: File) => Promise<string>;
  onDone: (artifact: string) => void;
}

/** Uploads a file; the id of its artifact becomes the value of the field. */
function Upload({ path, upload, onDone }: UploadProps) {
  const [problem, setProblem] = useState("");
  const put = async (file: File | undefined) => {
    if (!file) return;
    setProblem("");
    try {
      onDone(await upload(file));
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  return (
    <span class="inputs-upload">
      <span class="soft">or choose a file</span>
      <input type="file" aria-label={`A file for ${path}`} onChange={(event) => put(event.currentTarget.files?.[0])} />
      {problem && <small class="wrong">{problem}</small>}
    </span>
  );
}

function Numeric(props: Inner) {
  const { schema, common, value, onChange } = props;
  return (
    <input
      {...common}
      type="number"
      step={schema.type === "integer" ? 1 : "any"}
      min={schema.minimum}
      max={schema.maximum}
      defaultValue={typeof value === "number" ? String(value) : ""}
      onInput={(event) => {
        const text = event.currentTarget.value;
        onChange(text === "" ? emptyValue(props, undefined) : Number(text));
      }}
    />
  );
}

function Choice(props: Inner) {
  const { schema, common, value, onChange, isRequired } = props;
  const values = schema.enum ?? [];
  const index = values.findIndex((each) => JSON.stringify(each) === JSON.stringify(value));
  return (
    <select
      {...common}
      onInput={(event) => {
        const chosen = Number(event.currentTarget.value);
        onChange(chosen < 0 ? emptyValue(props, undefined) : values[chosen]);
      }}
    >
      {(!isRequired || index < 0) && (
        <option value="-1" selected={index < 0}>
          –
        </option>
      )}
      {values.map((each, place) => (
        <option key={place} value={String(place)} selected={place === index}>
          {typeof each === "string" ? each : JSON.stringify(each)}
        </option>
      ))}
    </select>
  );
}

function Raw(props: Inner) {
  const { common, value, onChange } = props;
  const [problem, setProblem] = useState("");
  return (
    <>
      <textarea
        {...common}
        rows={3}
        spellcheck={false}
        placeholder="JSON"
        defaultValue={value === undefined ? "" : JSON.stringify(value, null, 2)}
        onInput={(event) => {
          const text = event.currentTarget.value;
          try {
            onChange(text.trim() ? JSON.parse(text) : emptyValue(props, undefined));
            setProblem("");
          } catch (error) {
            setProblem(`Invalid JSON: ${(error as Error).message}`);
          }
        }}
      />
      {problem && <small class="wrong">{problem}</small>}
    </>
  );
}

/** A nested object. An optional one is added by a button. */
function Group(props: Inner) {
  const { form, schema, path, depth, isRequired, value, onChange, label } = props;
  const isPresent = value !== undefined && value !== null;
  if (!isPresent && !isRequired)
    return (
      <button type="button" class="small" onClick={() => onChange(initialInput(schema, form.root))}>
        Add {label}
      </button>
    );
  return (
    <>
      <Fields
        form={form}
        schema={schema}
        path={path}
        depth={depth}
        value={(isPresent ? value : {}) as Members}
        onChange={onChange}
      />
      {!isRequired && (
        <button type="button" class="small" onClick={() => onChange(undefined)}>
          Remove {label}
        </button>
      )}
    </>
  );
}

function List(props: Inner) {
  const { form, schema, path, depth, value, onChange, label } = props;
  const [turn, setTurn] = useState(0);
  const items = Array.isArray(value) ? value : [];
  const remove = (place: number) => {
    const rest = items.filter((_item, index) => index !== place);
    onChange(rest.length ? rest : emptyValue(props, []));
    setTurn((before) => before + 1); // the indexes of the following items have changed
  };
  return (
    <>
      {items.map((item, place) => (
        <div key={`${turn} ${place}`} class="inputs-item">
          <Member
            form={form}
            given={schema.items}
            label={`${label} ${place + 1}`}
            path={`${path}[${place}]`}
            depth={depth + 1}
            isRequired
            value={item}
            onChange={(next) => onChange(items.map((old, index) => (index === place ? (next ?? null) : old)))}
          />
          <button type="button" class="small" onClick={() => remove(place)} aria-label={`Remove ${label} ${place + 1}`}>
            Remove
          </button>
        </div>
      ))}
      <button
        type="button"
        class="small"
        disabled={schema.maxItems !== undefined && items.length >= schema.maxItems}
        onClick={() => onChange([...items, blank(resolved(schema.items, form.root).schema, form.root)])}
      >
        Add to {label}
      </button>
    </>
  );
}

const BLANKS: Record<string, unknown> = { string: "", integer: 0, number: 0, boolean: false, array: [] };

/** The value of a new item in a list. */
function blank(schema: Schema, root: Schema): unknown {
  if (schema.properties) return initialInput(schema, root);
  return schema.default ?? schema.const ?? schema.enum?.[0] ?? BLANKS[String(schema.type)] ?? {};
}
