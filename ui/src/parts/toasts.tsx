// Short words in a corner about what was just done.

import { signal } from "@preact/signals";
import { asProblem, type Problem } from "../api";

interface Toast {
  id: number;
  text: string;
  tone: "good" | "warn" | "bad";
}

const SECONDS = 6;
const toasts = signal<Toast[]>([]);
let last = 0;

export function toast(text: string, tone: Toast["tone"] = "good"): void {
  last += 1;
  const id = last;
  toasts.value = [...toasts.value, { id, text, tone }].slice(-4);
  setTimeout(() => dismiss(id), SECONDS * 1000 * (tone === "good" ? 1 : 2));
}

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((each) => each.id !== id);
}

/** Do something and say how it went; tells what came of it, or nothing where it failed. */
export async function attempt<T>(doing: () => Promise<T>, done: string | ((value: T) => string)): Promise<T | null> {
  try {
    const value = await doing();
    toast(typeof done === "string" ? done : done(value));
    return value;
  } catch (error) {
    tell(asProblem(error));
    return null;
  }
}

/** Say why something was not done. */
export function tell(problem: Problem): void {
  const place = problem.field ? `${problem.field}: ` : "";
  toast(`${place}${problem.message}${problem.hint ? ` ${problem.hint}` : ""}`, "bad");
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((each) => (
        <div key={each.id} class={`toast ${each.tone}`}>
          <span>{each.text}</span>
          <button type="button" class="copy" onClick={() => dismiss(each.id)} aria-label="Dismiss">
            ✕
          </button>
        </div>
      ))}
    </div>
  );
}
