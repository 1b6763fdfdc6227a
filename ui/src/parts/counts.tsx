// How many jobs are what, as a bar and in words.

import { count, plain } from "../words";
import type { Tone } from "./basics";
import "./counts.css";

interface CountBarProps {
  /** Only what there is: none of the counts is 0. */
  counts: readonly { name: string; count: number; tone: Tone }[];
  /** Whether the widths are the shares. Otherwise few jobs beside many are shown wider, to be seen and compared. */
  isExact?: boolean;
}

export function CountBar({ counts, isExact = false }: CountBarProps) {
  return (
    <div class="counts">
      <div class="counts-bar" aria-hidden="true">
        {counts.map((each) => (
          <span key={each.name} class={each.tone} style={{ flexGrow: isExact ? each.count : Math.sqrt(each.count) }} />
        ))}
      </div>
      <small class="soft">{counts.map((each) => `${count(each.count)} ${plain(each.name)}`).join(", ")}</small>
    </div>
  );
}
