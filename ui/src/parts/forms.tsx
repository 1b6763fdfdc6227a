// Form fields, and drafts: input that is kept in the tab until it is sent, so that a lost session or a reload does not
// discard it.

import { useEffect, useId, useState } from "preact/hooks";
import { onUserChange } from "../api";

export interface FieldSpec {
  name: string;
  label: string;
  type?: "text" | "number" | "area" | "select" | "password" | "check" | "datetime-local";
  hint?: string;
  value?: string | number;
  required?: boolean;
  placeholder?: string;
  min?: number;
  max?: number;
  /** The height of an area. */
  rows?: number;
  options?: readonly (string | { value: string; label: string })[];
  pattern?: string;
  /** What the browser offers to complete the text. */
  suggestions?: readonly string[];
  monospace?: boolean;
  autofocus?: boolean;
  onInput?: (value: string) => void;
}

interface FieldProps extends FieldSpec {
  error?: string | undefined;
}

/** One field with its label, hint and error. */
export function Field(props: FieldProps) {
  const {
    name,
    label,
    type = "text",
    hint,
    value,
    error,
    options = [],
    onInput,
    monospace,
    autofocus,
    suggestions,
    rows = 5,
    ...rules
  } = props;
  const id = useId();
  const describedBy = notesOf({ id, hint, error });
  const common = {
    id,
    name,
    autoFocus: autofocus,
    "aria-describedby": describedBy,
    "aria-invalid": error ? true : undefined,
    class: monospace ? "mono" : undefined,
    onInput: (event: { currentTarget: { value: string } }) => onInput?.(event.currentTarget.value),
    ...rules,
  };
  return (
    <div class={`field ${type}`}>
      <label for={id}>{label}</label>
      {type === "area" ? (
        <textarea {...common} rows={rows} spellcheck={false} defaultValue={value === undefined ? "" : String(value)} />
      ) : type === "select" ? (
        <select {...common}>
          {options.map((option) => {
            const one = typeof option === "string" ? { value: option, label: option } : option;
            return (
              <option key={one.value} value={one.value} selected={one.value === String(value ?? "")}>
                {one.label}
              </option>
            );
          })}
        </select>
      ) : type === "check" ? (
        <input {...common} type="checkbox" value="yes" defaultChecked={Boolean(value)} />
      ) : (
        <input
          {...common}
          {...({ type } as { type: "text" })}
          step={type === "number" ? "any" : undefined}
          defaultValue={value === undefined ? "" : String(value)}
          autocomplete="off"
          list={suggestions && `${id}-known`}
        />
      )}
      {suggestions && (
        <datalist id={`${id}-known`}>
          {suggestions.map((each) => (
            <option key={each} value={each} />
          ))}
        </datalist>
      )}
      <Notes id={id} hint={hint} error={error} />
    </div>
  );
}

interface NotesProps {
  /** The id of the field that the notes describe. */
  id: string;
  hint: string | undefined;
  error: string | undefined;
}

/** The hint and the error below a field. */
export function Notes({ id, hint, error }: NotesProps) {
  return (
    <>
      {hint && (
        <small id={`${id}-hint`} class="soft">
          {hint}
        </small>
      )}
      {error && (
        <small id={`${id}-error`} class="wrong" role="alert">
          {error}
        </small>
      )}
    </>
  );
}

/** The ids of a field's notes, for `aria-describedby`. */
export function notesOf({ id, hint, error }: NotesProps): string | undefined {
  return [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ") || undefined;
}

/** The values of a form's fields by name. */
export function readFields(form: HTMLFormElement): Record<string, string> {
  return Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, String(value)]));
}

const DRAFT = "draft:";

onUserChange.add(() => {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith(DRAFT)) sessionStorage.removeItem(key);
});

/** A value that is kept in this tab under a name until it is cleared. */
export function useDraft(name: string, first: string): [string, (value: string) => void, () => void] {
  const key = `${DRAFT}${name}`;
  const [value, setValue] = useState(() => sessionStorage.getItem(key) ?? first);
  useEffect(() => {
    setValue(sessionStorage.getItem(key) ?? first);
  }, [key]);
  const keep = (next: string) => {
    setValue(next);
    try {
      sessionStorage.setItem(key, next);
    } catch {
      // Too large for session storage: it is lost when the page is closed.
    }
  };
  const clear = () => {
    sessionStorage.removeItem(key);
    setValue(first);
  };
  return [value, keep, clear];
}
