// The traceback of a job's error, as text.

import type { JobDetail } from "../wire";
import "./traceback.css";

/** Where the job's code raised its error: the traceback of the last attempt that has one. */
export function tracebackOf(detail: JobDetail): string | null {
  return detail.attempts.map((each) => each.traceback ?? null).reduce((last, each) => each ?? last, null);
}

export function Traceback({ text }: { text: string | null | undefined }) {
  if (!text) return null;
  return (
    <details class="traceback">
      <summary>Traceback</summary>
      <pre>{text}</pre>
    </details>
  );
}
