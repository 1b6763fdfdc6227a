// How many jobs are what, as a bar and in words.

import { count, plain } from "../words";
import type { Tone } from "./basics";
import "./counts.css";

interface CountBarProps {
  /** Only what there is: none of the counts is 0. */
  counts: readonly { name: string; count: number; tone: Tone }[];
}

/** The widths are the square roots of the counts, so that few jobs beside many are still seen. */
export function CountBar({ counts }: CountBarProps) {
  return (
    <div class="counts">
      <div class="counts-bar" aria-hidden="true">
        {counts.map((each) => (
          <span key={each.name} class={each.tone} style={{ flexGrow: Math.sqrt(each.count) }} />
        ))}
      </div>
      <small class="soft">{counts.map((each) => `${count(each.count)} ${plain(each.name)}`).join(", ")}</small>
    </div>
  );
}
