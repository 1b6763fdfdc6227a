// Short messages in a corner about the results of actions.

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

/** Perform an action and show its result as a message. Returns its value, or null if it failed. */
export async function attempt<T>(action: () => Promise<T>, done: string | ((value: T) => string)): Promise<T | null> {
  try {
    const value = await action();
    toast(typeof done === "string" ? done : done(value));
    return value;
  } catch (error) {
    showProblem(asProblem(error));
    return null;
  }
}

/** Show why an action failed. */
export function showProblem(problem: Problem): void {
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
