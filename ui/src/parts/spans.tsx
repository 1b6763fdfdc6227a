// How far back one looks. The choice is in the address.

import { place, setQuery } from "../router";
import "./spans.css";

export const LENGTHS: Record<string, string> = {
  "1h": "hour",
  "6h": "6 hours",
  "24h": "24 hours",
  "7d": "7 days",
  "30d": "30 days",
};

/** What can be chosen under a name in the address, and what is meant where it says nothing. */
export interface Choice {
  name: string;
  choices: readonly string[];
  usual: string;
}

export function chosen({ name, choices, usual }: Choice): string {
  const given = place.value.query.get(name) ?? "";
  return choices.includes(given) ? given : usual;
}

/** Buttons of which one is pressed. */
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
          onClick={() => setQuery({ [of.name]: each === of.usual ? null : each, cursor: null })}
        >
          {each}
        </button>
      ))}
    </fieldset>
  );
}
