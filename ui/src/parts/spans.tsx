// The time range of a page. The choice is part of the URL.

import { place, setQuery } from "../router";
import "./spans.css";

export const LENGTHS: Record<string, string> = {
  "1h": "hour",
  "6h": "6 hours",
  "24h": "24 hours",
  "7d": "7 days",
  "30d": "30 days",
};

/** The choices for a parameter of the URL, and its default. */
export interface Choice {
  name: string;
  choices: readonly string[];
  preset: string;
}

export function chosen({ name, choices, preset }: Choice): string {
  const given = place.value.query.get(name) ?? "";
  return choices.includes(given) ? given : preset;
}

/** Buttons, one of which is pressed. */
export function Spans({ of, label }: { of: Choice; label: string }) {
  const now = chosen(of);
  return (
    <fieldset class="spans">
      <legend class="unseen">{label}</legend>
      {of.choices.map((each) => (
        <button
          key={each}
          type="button"
          class="small"
          aria-pressed={each === now}
          title={`The last ${LENGTHS[each] ?? each}`}
          onClick={() => setQuery({ [of.name]: each === of.preset ? null : each, cursor: null })}
        >
          {each}
        </button>
      ))}
    </fieldset>
  );
}
