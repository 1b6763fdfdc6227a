// Fields above a list that filter it. The filter is part of the URL.

import { useEffect, useId, useState } from "preact/hooks";
import "./filters.css";

interface TypedProps {
  label: string;
  value: string | undefined;
  hint?: string;
  options?: readonly string[];
  isDisabled?: boolean;
  onValue: (value: string) => void;
}

/** A field that is applied at Enter or when it loses focus. Updates of the page do not change what is being typed. */
export function Typed({ label, value = "", hint, options, isDisabled = false, onValue }: TypedProps) {
  const id = useId();
  const [draft, setDraft] = useState(value);
  useEffect(() => setDraft(value), [value]);
  const commit = () => draft.trim() !== value && onValue(draft.trim());
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        value={draft}
        placeholder={hint ?? "any"}
        disabled={isDisabled}
        list={options?.length ? `${id}-options` : undefined}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => setDraft(event.currentTarget.value)}
        onBlur={commit}
        onKeyDown={(event) => event.key === "Enter" && commit()}
      />
      {options?.length ? (
        <datalist id={`${id}-options`}>
          {options.map((option) => (
            <option key={option} value={option} />
          ))}
        </datalist>
      ) : null}
    </div>
  );
}

interface PickedProps {
  label: string;
  value: string;
  options: readonly (readonly [string, string])[];
  /** The label of a value that is none of the options, such as one in the URL. */
  other?: (value: string) => string;
  onValue: (value: string) => void;
}

export function Picked({ label, value, options, other = String, onValue }: PickedProps) {
  const id = useId();
  const isKnown = options.some(([each]) => each === value);
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={(event) => onValue(event.currentTarget.value)}>
        {!isKnown && <option value={value}>{other(value)}</option>}
        {options.map(([each, words]) => (
          <option key={each} value={each}>
            {words}
          </option>
        ))}
      </select>
    </div>
  );
}
