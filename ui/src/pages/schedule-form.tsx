// Creating and editing a schedule: its kind, its input, and its timing with the next due times.

import { useRef, useState } from "preact/hooks";
import { act, asProblem, freshKey, get, type Problem, refusal, session } from "../api";
import { useLoaded } from "../live";
import { Ago, Button, Page, Panel, Show, Trouble } from "../parts/basics";
import { Field, type FieldSpec } from "../parts/forms";
import { chosenTenant } from "../parts/frame";
import { hasFields, initialInput, type Schema, SchemaForm } from "../parts/inputs";
import { ZonedTime } from "../parts/schedules";
import { cronWords, durationText } from "../parts/timing";
import { toast } from "../parts/toasts";
import { go, Link, part, place } from "../router";
import type { KindInfo, Kinds, ScheduleDetail, SchedulePreview } from "../wire";
import { localTime } from "../words";

const WAYS = ["cron", "every", "at"] as const;
type Way = (typeof WAYS)[number];

/** What is in the fields. */
interface Draft {
  name: string;
  tenant: string;
  account: string;
  kind: string;
  way: Way;
  cron: string;
  zone: string;
  every: string;
  at: string;
  jitter: string;
  overlap: string;
  catch_up: string;
  catch_up_max: string;
  due_field: string;
  priority: string;
  expires_in: string;
  tags: string;
}

type Members = Record<string, unknown>;

export function NewSchedule() {
  const kinds = useLoaded((signal) => get<Kinds>("kinds", {}, signal), [], { live: false });
  return (
    <Page title="Create schedule">
      <Show of={kinds} lines={10}>
        {({ data }) => <ScheduleForm kinds={data} before={null} />}
      </Show>
    </Page>
  );
}

export function EditSchedule({ id }: { id: string }) {
  const kinds = useLoaded((signal) => get<Kinds>("kinds", {}, signal), [], { live: false });
  const found = useLoaded((signal) => get<ScheduleDetail>(`schedules/${part(id)}`, {}, signal), [id], { live: false });
  return (
    <Page title={found.value ? `Edit ${found.value.name}` : "Edit schedule"}>
      <Show of={found} lines={10}>
        {(before) => <Show of={kinds}>{({ data }) => <ScheduleForm kinds={data} before={before} />}</Show>}
      </Show>
    </Page>
  );
}

/** The fields of a schedule, or of a new one. */
function draftOf(before: ScheduleDetail | null, kinds: readonly KindInfo[]): Draft {
  const tenant = session.value?.tenant ?? chosenTenant().tenant ?? "";
  const wanted = place.value.query.get("kind") ?? "";
  if (!before)
    return {
      ...{ name: "", tenant, account: "", kind: kinds.find((kind) => kind.name === wanted)?.name ?? "" },
      ...{ way: "cron", cron: "0 3 * * *", zone: Intl.DateTimeFormat().resolvedOptions().timeZone },
      ...{ every: "", at: "", jitter: "", overlap: "queue", catch_up: "last", catch_up_max: "100" },
      ...{ due_field: "", priority: "", expires_in: "", tags: "" },
    };
  const { name, account, kind, overlap, catch_up } = before;
  return {
    ...{ name, tenant: before.tenant, account, kind, overlap, catch_up },
    way: before.cron !== null ? "cron" : before.every_seconds !== null ? "every" : "at",
    cron: before.cron ?? "",
    zone: before.zone,
    every: durationText(before.every_seconds),
    at: before.at ? localTime(new Date(before.at)) : "",
    jitter: durationText(before.jitter_seconds),
    catch_up_max: String(before.catch_up_max),
    due_field: before.due_field ?? "",
    priority: before.priority === null ? "" : String(before.priority),
    expires_in: durationText(before.expires_in_seconds),
    tags: Object.entries(before.tags)
      .map(([key, value]) => `${key}=${value}`)
      .join("\n"),
  };
}

/** A duration as it is typed: seconds, or text such as 15m. */
function duration(text: string): string | number | null {
  const typed = text.trim();
  return typed && !Number.isNaN(Number(typed)) ? Number(typed) : typed || null;
}

/** A time of a `datetime-local` field for the API; null if it is empty. */
function instant(text: string): string | null {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? null : at.toISOString();
}

/** The timing as the API takes it. A single time that was not changed keeps its seconds. */
function timingOf(draft: Draft, first: Draft, before: ScheduleDetail | null): Members {
  const jitter = duration(draft.jitter);
  if (draft.way === "cron") return { cron: draft.cron.trim(), zone: draft.zone.trim() || null, jitter };
  if (draft.way === "every") return { every: duration(draft.every), jitter };
  return { at: before?.at && draft.at === first.at ? before.at : instant(draft.at), jitter };
}

function tagsOf(text: string): Record<string, string> {
  const lines = text.split("\n").filter((line) => line.trim());
  return Object.fromEntries(
    lines.map((line) => {
      const [key = "", ...value] = line.split("=");
      return [key.trim(), value.join("=").trim()];
    }),
  );
}

/** What is sent beside the name. */
function bodyOf(draft: Draft, input: unknown, timing: Members): Members {
  return {
    ...timing,
    input,
    kind: draft.kind,
    account: draft.account.trim(),
    overlap: draft.overlap,
    catch_up: draft.catch_up,
    catch_up_max: Number(draft.catch_up_max),
    due_field: draft.due_field.trim() || null,
    priority: draft.priority.trim() ? Number(draft.priority) : null,
    expires_in: duration(draft.expires_in),
    tags: tagsOf(draft.tags),
  };
}

interface FormProps {
  kinds: readonly KindInfo[];
  /** Null: a schedule is created. */
  before: ScheduleDetail | null;
}

function ScheduleForm({ kinds, before }: FormProps) {
  const [first] = useState(() => draftOf(before, kinds));
  const [draft, setDraft] = useState(first);
  const [input, setInput] = useState<Input>(() => inputOf(before?.input ?? firstInput(kinds, first.kind)));
  const [problem, setProblem] = useState<Problem | null>(null);
  const key = useRef(freshKey());
  const timing = timingOf(draft, first, before);
  const upcoming = usePreview(timing);
  const wrong = problem ?? (isOfTiming(upcoming.problem) ? upcoming.problem : null);
  const change = (changes: Partial<Draft>) => {
    setDraft((last) => ({ ...last, ...changes }));
    setProblem(null);
    key.current = freshKey();
    if (changes.kind !== undefined && !before) setInput(inputOf(firstInput(kinds, changes.kind)));
  };
  const field: FieldMaker = (name, spec) => (
    <Field
      {...spec}
      name={name}
      value={first[name]}
      error={name === wrong?.field ? [wrong.message, wrong.hint].filter(Boolean).join(" ") : undefined}
      onInput={(value) => change({ [name]: value })}
    />
  );
  const save = async () => {
    setProblem(null);
    try {
      const saved = await send(draft, bodyOf(draft, input.value, timing), before, key.current);
      toast(before ? "Schedule saved." : "Schedule created.");
      go(`/schedules/${part(saved.id)}`, chosenTenant());
    } catch (error) {
      setProblem(asProblem(error, before ? "unsure" : "once"));
    }
  };
  const because =
    refusal("operator") ??
    (before?.source === "code" ? "It is declared in the code of an app. Change it there." : undefined) ??
    (input.wrong || missing(draft));
  const hasField = problem?.field !== null && problem?.field !== undefined && problem.field in first;
  return (
    <form class="schedules-form" onSubmit={(event) => event.preventDefault()}>
      <div class="schedules-columns">
        <div>
          <What field={field} before={before} kinds={kinds} draft={draft} />
          <Panel title="Input">
            <InputFields
              key={draft.kind}
              kind={kinds.find((kind) => kind.name === draft.kind)}
              input={input}
              problem={problem}
              onChange={(next) => {
                setInput(next);
                setProblem(null);
                key.current = freshKey();
              }}
            />
            {field("due_field", {
              label: "Due field",
              hint: "The member of the input that is set to the due time. Leave empty for none.",
            })}
          </Panel>
        </div>
        <div>
          <When field={field} draft={draft} upcoming={upcoming} />
          <Policies field={field} draft={draft} />
        </div>
      </div>
      {problem && !hasField && <Trouble problem={problem} />}
      <div class="acts">
        <Link to={before ? `/schedules/${part(before.id)}` : "/schedules"} query={chosenTenant()} class="button">
          Cancel
        </Link>
        <Button tone="main" because={because} onClick={save}>
          {before ? "Save" : "Create schedule"}
        </Button>
      </div>
    </form>
  );
}

function send(draft: Draft, body: Members, before: ScheduleDetail | null, key: string): Promise<ScheduleDetail> {
  if (!before) {
    const query = { tenant: draft.tenant.trim() };
    return act<ScheduleDetail>("POST", "schedules", { ...body, name: draft.name.trim() }, { query, key });
  }
  const { zone, ...others } = body;
  return act<ScheduleDetail>("PATCH", `schedules/${part(before.id)}`, { ...others, ...(zone ? { zone } : {}) });
}

/** Why nothing can be sent yet. */
function missing(draft: Draft): string | undefined {
  if (!draft.name.trim()) return "Enter a name first.";
  if (!draft.tenant.trim() || !draft.account.trim()) return "Enter a tenant and an account first.";
  return draft.kind ? undefined : "Choose a kind first.";
}

// The parts of the form

type FieldMaker = (name: keyof Draft, spec: Omit<FieldSpec, "name">) => preact.JSX.Element;

interface WhatProps {
  field: FieldMaker;
  before: ScheduleDetail | null;
  kinds: readonly KindInfo[];
  draft: Draft;
}

function What({ field, before, kinds, draft }: WhatProps) {
  const names = kinds.map((kind) => kind.name);
  const known = before && !names.includes(before.kind) ? [before.kind, ...names] : names;
  const price = kinds.find((kind) => kind.name === draft.kind)?.price;
  return (
    <Panel title="Jobs">
      {!before && (
        <div class="schedules-fields">
          {field("name", { label: "Name", required: true, hint: "Unique within the tenant." })}
          {!session.value?.tenant && field("tenant", { label: "Tenant", required: true })}
        </div>
      )}
      <div class="schedules-fields">
        {field("kind", {
          label: "Kind",
          type: "select",
          options: [...(draft.kind ? [] : [{ value: "", label: "choose a kind" }]), ...known],
        })}
        {field("account", {
          label: "Account",
          required: true,
          hint: price ? `Pays for each job: ${price} credits.` : "Pays for the jobs.",
        })}
      </div>
      {field("tags", {
        label: "Tags",
        type: "area",
        rows: 2,
        hint: "One per line, such as team=ads. Jobs are found by them.",
      })}
    </Panel>
  );
}

interface WhenProps {
  field: FieldMaker;
  draft: Draft;
  upcoming: Upcoming;
}

function When({ field, draft, upcoming }: WhenProps) {
  const words = cronWords(draft.cron);
  return (
    <Panel title="Due">
      {field("way", {
        label: "Timing",
        type: "select",
        options: [
          { value: "cron", label: "by a cron expression" },
          { value: "every", label: "at intervals" },
          { value: "at", label: "once" },
        ],
      })}
      <div class="schedules-fields" key={draft.way}>
        {draft.way === "cron" &&
          field("cron", {
            label: "Cron expression",
            monospace: true,
            hint: words ? `Due ${words}.` : "Minute, hour, day of month, month, day of week.",
          })}
        {draft.way === "cron" && field("zone", { label: "Time zone", suggestions: Intl.supportedValuesOf("timeZone") })}
        {draft.way === "every" &&
          field("every", { label: "Interval", hint: "For example 15m, 1h or 7d.", placeholder: "15m" })}
        {draft.way === "at" && field("at", { label: "Time", type: "datetime-local", hint: "In your time zone." })}
        {field("jitter", { label: "Jitter", hint: "The limit of a random delay, such as 5m. Leave empty for none." })}
      </div>
      <h3>Next due times</h3>
      {upcoming.times.length ? (
        <ol class="schedules-upcoming" aria-label="Next due times">
          {upcoming.times.map((at) => (
            <li key={at}>
              <ZonedTime at={at} zone={draft.way === "cron" ? draft.zone : "UTC"} />
              <span class="soft">
                <Ago at={at} />
              </span>
            </li>
          ))}
        </ol>
      ) : (
        <p class="soft">{upcoming.problem ? "None: the timing is not valid." : "…"}</p>
      )}
    </Panel>
  );
}

function Policies({ field, draft }: { field: FieldMaker; draft: Draft }) {
  return (
    <Panel title="Policies">
      <div class="schedules-fields">
        {field("overlap", {
          label: "Overlap",
          type: "select",
          options: [
            { value: "queue", label: "queue: submit the job" },
            { value: "skip", label: "skip the due time" },
            { value: "cancel_previous", label: "cancel the previous job" },
          ],
          hint: "If the job of the previous due time has not ended.",
        })}
        {field("catch_up", {
          label: "Catch-up",
          type: "select",
          options: [
            { value: "last", label: "the last one" },
            { value: "all", label: "all of them" },
            { value: "none", label: "none" },
          ],
          hint: "Which missed due times are made up for.",
        })}
        {draft.catch_up === "all" &&
          field("catch_up_max", { label: "At most", type: "number", min: 1, max: 1_000, hint: "The last ones." })}
      </div>
      <div class="schedules-fields">
        {field("priority", { label: "Priority", type: "number", min: -100, max: 100, hint: "Empty: of the kind." })}
        {field("expires_in", { label: "Expires after", hint: "Such as 2h. Empty: as the kind." })}
      </div>
    </Panel>
  );
}

// The input

/** The input, and the text it is edited as if its kind has no fields. */
interface Input {
  value: Members;
  text: string;
  wrong: string;
}

function inputOf(value: unknown): Input {
  return { value: (value ?? {}) as Members, text: JSON.stringify(value ?? {}, null, 2), wrong: "" };
}

function firstInput(kinds: readonly KindInfo[], name: string): Members {
  const kind = kinds.find((each) => each.name === name);
  return kind ? initialInput(kind.input_schema as Schema) : {};
}

function parsed(text: string, last: Input): Input {
  try {
    const value: unknown = JSON.parse(text || "{}");
    if (value && typeof value === "object" && !Array.isArray(value))
      return { value: value as Members, text, wrong: "" };
    return { ...last, text, wrong: "The input must be a JSON object: { … }." };
  } catch (error) {
    return { ...last, text, wrong: `The input is not valid JSON: ${(error as Error).message}` };
  }
}

interface InputProps {
  kind: KindInfo | undefined;
  input: Input;
  problem: Problem | null;
  onChange: (input: Input) => void;
}

function InputFields({ kind, input, problem, onChange }: InputProps) {
  const schema = (kind?.input_schema ?? {}) as Schema;
  if (!hasFields(schema))
    return (
      <Field
        name="input"
        label="Input"
        type="area"
        value={input.text}
        hint="A JSON object."
        error={input.wrong || (problem?.field?.startsWith("input") ? problem.message : undefined)}
        onInput={(text) => onChange(parsed(text, input))}
      />
    );
  return (
    <SchemaForm
      root={schema}
      value={input.value}
      turn={0}
      errors={problem?.field ? { [problem.field]: problem.message } : {}}
      onChange={(value) => onChange(inputOf(value))}
    />
  );
}

// The next due times

interface Upcoming {
  times: readonly string[];
  problem: Problem | null;
}

const SHOWN = 5;
const TIMING = ["cron", "every", "at", "zone", "jitter"];

function isOfTiming(problem: Problem | null): boolean {
  return problem?.field !== undefined && TIMING.includes(problem?.field ?? "");
}

/** The next due times of a timing, read again when it changes. */
function usePreview(timing: Members): Upcoming {
  const isEmpty = !timing["cron"] && !timing["every"] && !timing["at"];
  const found = useLoaded(
    async (signal) =>
      isEmpty
        ? { upcoming: [] }
        : act<SchedulePreview>("POST", "schedules/preview", { ...timing, count: SHOWN }, { signal }),
    [timing],
    { live: false },
  );
  return { times: found.value?.upcoming ?? [], problem: found.problem };
}
