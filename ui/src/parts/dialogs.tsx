// Dialogs: every act that changes something asks first, and says what it will do.

import { computed, effect, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { asProblem, type Problem } from "../api";
import { place } from "../router";
import { Copy, Trouble } from "./basics";
import { Field, type FieldSpec, readFields } from "./forms";
import { tell } from "./toasts";

interface ModalProps {
  title: string;
  /** Leave it: by Escape. Where there is no such way, only its own buttons close it. */
  onLeave?: (() => void) | undefined;
  children: ComponentChildren;
}

/** A dialog over everything. Browsers close one that does not want to when Escape is pressed again: it comes back. */
export function Modal({ title, onLeave, children }: ModalProps) {
  const box = useRef<HTMLDialogElement>(null);
  const show = () => box.current?.isConnected && !box.current.open && box.current.showModal();
  useEffect(() => {
    show();
    return () => box.current?.close();
  }, []);
  const cancel = (event: Event) => {
    if (event.target !== box.current) return;
    event.preventDefault();
    onLeave?.();
  };
  return (
    <dialog
      ref={box}
      aria-label={title}
      onCancel={cancel}
      onClose={show}
      onKeyDown={(event) => event.key === "Escape" && !onLeave && event.preventDefault()}
    >
      <h2>{title}</h2>
      {children}
    </dialog>
  );
}

export interface Question {
  title: string;
  text?: ComponentChildren;
  /** What the button says: a verb. */
  action: string;
  tone?: "main" | "bad";
  fields?: FieldSpec[];
  /** What is done; where it fails, the dialog stays with what was typed, and tells why. */
  act: (values: Record<string, string>) => Promise<unknown>;
}

/** A question that was asked, and whom to tell whether it was done. */
interface Asked {
  number: number;
  question: Question;
  isBusy: boolean;
  answer: (isDone: boolean) => void;
}

const open = signal<Asked | null>(null);
/** Whether somebody is being asked: what stands behind the dialog keeps still. */
export const isAsking = computed(() => open.value !== null);
let number = 0;

/** Ask, and do it if the answer is yes. Tells whether it was done. */
export function ask(question: Question): Promise<boolean> {
  leave(open.peek());
  return new Promise((answer) => {
    number += 1;
    open.value = { number, question, isBusy: false, answer };
  });
}

/** Ask no longer. What is being done already goes on, and tells by itself how it ended. */
function leave(asked: Asked | null): void {
  if (!asked) return;
  if (open.peek() === asked) open.value = null;
  if (!asked.isBusy) asked.answer(false);
}

// A question is about what stands behind it: it does not go along to another page.
let path = place.peek().path;
effect(() => {
  if (place.value.path === path) return;
  path = place.value.path;
  leave(open.peek());
});

export function Dialogs() {
  const asked = open.value;
  return asked ? <Asking key={asked.number} asked={asked} /> : null;
}

function Asking({ asked }: { asked: Asked }) {
  const { question } = asked;
  const [problem, setProblem] = useState<Problem | null>(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    if (asked.isBusy) return;
    asked.isBusy = true;
    setBusy(true);
    setProblem(null);
    try {
      await question.act(readFields(event.currentTarget as HTMLFormElement));
      if (open.peek() === asked) open.value = null;
      asked.answer(true);
    } catch (error) {
      asked.isBusy = false;
      setBusy(false);
      setProblem(asProblem(error));
      if (open.peek() === asked) return;
      tell(asProblem(error));
      asked.answer(false);
    }
  };
  const wrong = question.fields?.find((field) => field.name === problem?.field);
  return (
    <Modal title={question.title} onLeave={isBusy ? undefined : () => leave(asked)}>
      <form onSubmit={submit}>
        {question.text && <div class="dialog-text">{question.text}</div>}
        {question.fields?.map((field) => (
          <Field key={field.name} {...field} error={field === wrong ? wordsOf(problem) : undefined} />
        ))}
        {problem && !wrong && <Trouble problem={problem} />}
        <div class="acts">
          <button type="button" disabled={isBusy} onClick={() => leave(asked)}>
            Leave it
          </button>
          <button type="submit" class={question.tone ?? "main"} disabled={isBusy} aria-busy={isBusy}>
            {question.action}
          </button>
        </div>
      </form>
    </Modal>
  );
}

function wordsOf(problem: Problem | null): string {
  return [problem?.message, problem?.hint].filter(Boolean).join(" ");
}

const secret = signal<{ title: string; text: string; value: string } | null>(null);

/** Show something that is told this once. */
export function showSecret(title: string, text: string, value: string): void {
  secret.value = { title, text, value };
}

/** It goes away by its button alone: nobody loses a secret by a key that was meant for something else. */
export function Secrets() {
  const shown = secret.value;
  const field = useRef<HTMLInputElement>(null);
  if (!shown) return null;
  return (
    <Modal key={shown.value} title={shown.title}>
      <p class="dialog-text">{shown.text}</p>
      <input
        ref={field}
        class="secret"
        readOnly
        value={shown.value}
        aria-label={shown.title}
        onFocus={(event) => event.currentTarget.select()}
      />
      <div class="acts">
        <Copy text={shown.value} what="secret" label="Copy" onCopy={() => field.current?.select()} />
        <button type="button" class="main" onClick={() => (secret.value = null)}>
          I have it
        </button>
      </div>
    </Modal>
  );
}
